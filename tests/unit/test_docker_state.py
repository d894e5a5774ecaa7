"""A container stack that was started is known from its files, without asking Docker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.planning import host, plan_for
from zluda_stack import paths
from zluda_stack.engines.base import State
from zluda_stack.engines.docker.engine import DockerEngine
from zluda_stack.engines.docker.state import (
    Mark,
    StackFolder,
    read_plan,
    running_stacks,
    write_mark,
)
from zluda_stack.errors import HostProblem
from zluda_stack.host.probe import probe
from zluda_stack.plan.types import to_json
from zluda_stack.progress import Silent


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StackFolder:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = StackFolder(paths.stack("mine"))
    made.root.mkdir(parents=True)
    return made


def test_the_port_of_a_started_container_stack_counts_as_ours(folder: StackFolder) -> None:
    write_mark(folder, Mark(port=18080))

    assert [(one.name, one.port) for one in probe(None, {}).running] == [("mine", 18080)]


def test_what_the_cards_had_free_before_the_start_is_remembered(folder: StackFolder) -> None:
    plan = plan_for(host("radeon-rx-7900-xtx"))
    folder.plan.write_bytes(to_json(plan))
    write_mark(folder, Mark(port=18080))

    (running,) = running_stacks(paths.stacks())

    assert running.free_bytes == {"0000:86:00.0": 24 << 30}


def test_after_down_removed_the_mark_the_port_is_a_strangers(folder: StackFolder) -> None:
    write_mark(folder, Mark(port=18080))
    folder.mark.unlink()

    assert running_stacks(paths.stacks()) == ()


def test_a_damaged_mark_is_no_stack_and_no_error(folder: StackFolder) -> None:
    folder.mark.write_bytes(b"\xff{not json")

    assert running_stacks(paths.stacks()) == ()


def test_a_stack_that_was_taken_down_is_stopped_also_where_no_docker_answers(
    folder: StackFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    engine = DockerEngine()

    assert engine.status("mine").state is State.STOPPED
    assert not engine.down("mine", Silent())

    write_mark(folder, Mark(port=18080))
    with pytest.raises(HostProblem, match="does not answer"):
        engine.status("mine")


def test_an_embedded_stacks_plan_is_not_taken_for_a_container_stacks(folder: StackFolder) -> None:
    plan = plan_for(host("laptop-without-gpu-or-docker"), engine="embedded")
    folder.plan.write_bytes(to_json(plan))

    assert read_plan(folder) is None
