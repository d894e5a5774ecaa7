"""Which containers have failed while a stack starts, and which are only being replaced."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.test_docker_containers import RUNNING
from zluda_stack.engines.docker.containers import Container
from zluda_stack.engines.docker.waiting import Failures


def _container(**changes: Any) -> Container:
    return msgspec.structs.replace(RUNNING, **changes)


def _fails(container: Container, *before: Container) -> bool:
    return Failures(before).first((container,)) is container


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "exited", "exit_code": 3},
        {"state": "exited", "exit_code": 0},
        {"state": "dead", "exit_code": 1},
        {"state": "restarting", "exit_code": 1, "restarts": 1},
        {"state": "running", "restarts": 2, "health": "starting"},
        {"state": "running", "health": "unhealthy"},
        {"state": "exited", "exit_code": 4, "one_shot": True},
    ],
)
def test_a_new_container_that_ended_or_is_ill_has_failed(changes: dict[str, Any]) -> None:
    assert _fails(_container(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "created", "health": None},
        {"state": "running", "health": "starting"},
        {"state": "running", "health": "healthy"},
        {"state": "running", "health": None, "one_shot": True},
        {"state": "exited", "exit_code": 0, "one_shot": True},
    ],
)
def test_a_new_container_that_starts_lives_or_has_done_its_work_has_not(
    changes: dict[str, Any],
) -> None:
    assert not _fails(_container(**changes))


def test_an_old_container_that_compose_stops_to_replace_it_has_not_failed() -> None:
    stopped = _container(state="exited", exit_code=137, finished="2026-11-30T10:00:00Z")

    assert not _fails(stopped, RUNNING)


def test_an_old_end_that_compose_has_not_come_to_yet_has_not_failed() -> None:
    killed = _container(state="exited", exit_code=137, finished="2026-11-30T10:00:00Z")

    assert not _fails(killed, killed)


def test_an_old_container_that_was_started_again_and_ends_at_once_has_failed() -> None:
    killed = _container(state="exited", exit_code=137, finished="2026-11-30T10:00:00Z")
    again = _container(state="restarting", restarts=1, finished="2026-11-30T10:05:00Z")

    assert _fails(again, killed)
