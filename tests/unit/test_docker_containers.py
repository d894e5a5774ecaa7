"""From what the Docker Engine says of containers to what a user reads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from zluda_stack.engines.base import State
from zluda_stack.engines.docker.containers import Container, exit_status, overall, service_state

RUNNING = Container(
    id="1",
    service="inference",
    folder="/somewhere",
    state="running",
    health="healthy",
    exit_code=0,
    out_of_memory=False,
    pid=10,
    restarts=0,
    one_shot=False,
    finished="0001-01-01T00:00:00Z",
    image="sha256:1",
    tag="example/server:1",
)


def _state(*, changing: bool = False, answers: bool = False, **changes: Any) -> State:
    container = msgspec.structs.replace(RUNNING, **changes)
    return service_state(container, changing=changing, answers=answers)


def test_a_container_whose_health_check_still_waits_is_starting() -> None:
    assert _state(health="starting") is State.STARTING
    assert _state(health="healthy") is State.RUNNING
    assert _state(health=None) is State.RUNNING


def test_an_endpoint_that_just_answered_is_newer_than_the_last_health_check() -> None:
    assert _state(health="starting", answers=True) is State.RUNNING


def test_a_one_shot_is_waited_for_while_it_runs_and_done_when_it_ended_well() -> None:
    assert _state(one_shot=True, health=None) is State.STARTING
    assert _state(one_shot=True, state="exited", exit_code=0) is State.STOPPED
    assert _state(one_shot=True, state="exited", exit_code=1) is State.CRASHED


@pytest.mark.parametrize(
    ("state", "exit_code", "expected"),
    [
        ("exited", 137, State.CRASHED),
        ("exited", 1, State.CRASHED),
        ("dead", 1, State.CRASHED),
        ("restarting", 1, State.CRASHED),
        ("exited", 143, State.STOPPED),
        ("exited", 0, State.STOPPED),
    ],
)
def test_an_end_is_a_crash_unless_somebody_asked_for_it(
    state: str, exit_code: int, expected: State
) -> None:
    assert _state(state=state, exit_code=exit_code) is expected


def test_a_container_that_was_only_made_is_starting_while_a_command_works_on_it() -> None:
    assert _state(state="created", changing=True) is State.STARTING
    assert _state(state="created") is State.STOPPED


def test_a_signal_is_told_as_one() -> None:
    assert exit_status(137) == -9
    assert exit_status(3) == 3
    assert exit_status(0) == 0
    assert exit_status(255) == 255


def test_a_living_container_that_fails_its_check_is_ill_and_a_stopped_one_is_not() -> None:
    assert msgspec.structs.replace(RUNNING, health="unhealthy").ill
    assert not msgspec.structs.replace(RUNNING, health="unhealthy", state="exited").ill
    assert not RUNNING.ill


@pytest.mark.parametrize(
    ("done", "lasting", "expected"),
    [
        ([State.STOPPED], [State.RUNNING, State.RUNNING], State.RUNNING),
        ([State.STOPPED], [State.RUNNING, State.STARTING], State.STARTING),
        ([State.STOPPED], [State.RUNNING, State.CRASHED], State.CRASHED),
        ([State.CRASHED], [State.STOPPED, State.STOPPED], State.CRASHED),
        ([State.STOPPED], [State.STOPPED, State.STOPPED], State.STOPPED),
        ([State.STARTING], [], State.STARTING),
        ([State.STOPPED], [State.RUNNING, State.STOPPED], State.CRASHED),
    ],
)
def test_the_stack_is_as_well_as_its_least_well_service(
    done: list[State], lasting: list[State], expected: State
) -> None:
    assert overall(done + lasting, lasting) is expected
