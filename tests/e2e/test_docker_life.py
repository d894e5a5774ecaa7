"""Container stacks on a real Docker Engine, through their life."""

from __future__ import annotations

import os
import secrets
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.docker_engine import docker
from tests.e2e.conftest import eventually, own_xdg_folders
from tests.e2e.small_stack import SmallStack
from zluda_stack.engines import require_same_engine
from zluda_stack.engines.base import State
from zluda_stack.errors import EngineFailure, ExitCode, HostProblem, StackError, UsageError
from zluda_stack.host.probe import probe
from zluda_stack.progress import Silent

pytestmark = pytest.mark.docker

_FAILS = "echo cannot load the model; exit 3"


@pytest.fixture
def stack(standin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallStack]:
    """A stack that was never started; nothing of it is left behind."""
    monkeypatch.setenv(
        "DOCKER_CONFIG", os.environ.get("DOCKER_CONFIG", str(Path.home() / ".docker"))
    )
    own_xdg_folders(monkeypatch, tmp_path)
    made = SmallStack(f"test-{secrets.token_hex(4)}", standin)
    yield made
    made.down(volumes=True)


class Told:
    """Progress that remembers its steps."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, text: str) -> None:
        self.steps.append(text)

    def bytes(self, done: int, total: int | None) -> None:
        """Nothing of this is counted in bytes."""


def test_up_returns_when_the_endpoint_answers_and_down_leaves_nothing(stack: SmallStack) -> None:
    status = stack.up()

    assert status.healthy
    assert status.state is State.RUNNING
    assert status.url == f"http://127.0.0.1:{stack.port}"
    assert stack.states() == {"model": "stopped", "inference": "running", "endpoint": "running"}

    assert stack.down(volumes=True)
    assert stack.left_behind() == []
    assert stack.status().state is State.STOPPED
    assert not stack.down()


def test_down_keeps_the_volumes_unless_asked(stack: SmallStack) -> None:
    stack.up()
    stack.down()

    assert stack.left_behind() == [f"zluda-stack-{stack.name}_models"]

    stack.down(volumes=True)
    assert stack.left_behind() == []


def test_a_second_up_leaves_a_healthy_stack_alone(stack: SmallStack) -> None:
    assert not stack.engine.is_up(stack.plan())
    first = stack.up()
    assert stack.engine.is_up(stack.plan())
    assert not stack.engine.is_up(stack.plan(before="echo another"))
    told = Told()
    second = stack.engine.up(stack.plan(), told)

    assert [one.pid for one in second.services] == [one.pid for one in first.services]
    assert told.steps == []


def test_a_killed_container_is_told_with_its_log_and_up_heals(stack: SmallStack) -> None:
    stack.up()
    docker("kill", stack.container("inference"))

    status = stack.status()
    killed = next(one for one in status.services if one.name == "inference")
    assert status.state is State.CRASHED
    assert not status.healthy
    assert killed.exit_status == -signal.SIGKILL
    assert "loading" in killed.log_tail

    assert stack.up().healthy


def test_what_runs_but_fails_its_health_check_is_started_anew(stack: SmallStack) -> None:
    stack.up()
    docker("exec", stack.container("inference"), "rm", "/tmp/health")  # noqa: S108
    assert eventually(lambda: not stack.status().healthy)

    assert stack.up().healthy


def test_a_server_that_exits_at_once_is_reported_with_its_log(stack: SmallStack) -> None:
    with pytest.raises(EngineFailure) as failed:
        stack.up(stack.plan(before=_FAILS))

    assert "inference container ended (exit status 3)" in failed.value.message
    assert "cannot load the model" in failed.value.message
    assert stack.name in failed.value.hint
    assert not stack.status().healthy
    assert "cannot load the model" in list(
        stack.engine.logs(stack.name, "inference", 100, follow=False)
    )


def test_a_model_that_cannot_be_fetched_is_reported_with_its_log(stack: SmallStack) -> None:
    with pytest.raises(EngineFailure) as failed:
        stack.up(stack.plan(fetch="echo no such model; exit 4"))

    assert "model container ended (exit status 4)" in failed.value.message
    assert "no such model" in failed.value.message


def test_a_slow_start_is_waited_for_and_its_log_shown_as_a_sign_of_life(stack: SmallStack) -> None:
    told = Told()
    slow = stack.plan(before="echo loading; echo compiling kernel 7; sleep 12")

    assert stack.engine.up(slow, told).healthy
    signs = [step for step in told.steps if step.startswith("starting inference")]
    assert len(signs) >= 2
    assert all(sign.endswith(": compiling kernel 7") for sign in signs)


def test_a_replacement_that_fails_gives_way_to_what_ran(stack: SmallStack) -> None:
    stack.up(stack.plan(model="first"))

    with pytest.raises(EngineFailure) as failed:
        stack.up(stack.plan(model="second", before=_FAILS))

    assert "runs again as before, with first" in failed.value.hint
    status = stack.status()
    assert status.healthy
    assert status.model == "first"
    assert stack.up(stack.plan(model="first")).healthy


def test_a_failed_replacement_on_another_port_comes_back_to_the_old_one(stack: SmallStack) -> None:
    stack.up()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        another = other.getsockname()[1]

    with pytest.raises(EngineFailure):
        stack.up(stack.plan(port=another, before=_FAILS))

    assert stack.status().url == f"http://127.0.0.1:{stack.port}"
    assert stack.status().healthy


def test_a_port_that_another_program_holds_is_told_before_anything_starts(
    stack: SmallStack,
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", stack.port))
        other.listen()
        with pytest.raises(HostProblem, match=f"port {stack.port} on 127.0.0.1 is taken"):
            stack.up()

    assert stack.left_behind() == []


def test_the_port_of_our_own_running_stack_is_known_to_the_probe(stack: SmallStack) -> None:
    stack.up()
    ours = [(one.name, one.port) for one in probe(None, os.environ).running]
    assert ours == [(stack.name, stack.port)]

    stack.down()
    assert probe(None, os.environ).running == ()


def test_ctrl_c_while_it_starts_leaves_no_container_and_says_so(stack: SmallStack) -> None:
    slow = stack.plan(before="echo loading; sleep 600")
    process = stack.bring_up_elsewhere(slow)
    assert eventually(lambda: stack.states().get("inference") == "starting", 60)

    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)

    assert process.returncode == ExitCode.INTERRUPTED
    assert f"interrupted; the stack {stack.name} is stopped" in output
    assert [name for name in stack.left_behind() if "models" not in name] == []


def test_up_goes_on_with_what_a_killed_up_began(stack: SmallStack) -> None:
    slow = stack.plan(before="echo loading; sleep 8")
    process = stack.bring_up_elsewhere(slow)
    assert eventually(lambda: stack.states().get("inference") == "starting", 60)
    process.kill()
    process.communicate(timeout=60)

    assert stack.up(slow).healthy


def test_two_stacks_do_not_disturb_each_other(stack: SmallStack, standin: str) -> None:
    other = SmallStack(f"{stack.name}-b", standin)
    stack.up()
    try:
        other.up()
        other.down(volumes=True)
        assert stack.status().healthy
    finally:
        other.down(volumes=True)


def test_containers_of_another_users_stack_are_left_alone(
    stack: SmallStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.up()
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
        with pytest.raises(HostProblem, match="of another stack"):
            stack.up()
        assert not stack.down()
        assert stack.status().state is State.STOPPED

    assert stack.status().healthy


def test_a_stack_of_one_engine_is_not_started_over_by_another(stack: SmallStack) -> None:
    stack.up()
    embedded = msgspec.structs.replace(stack.plan(), engine="embedded")

    with pytest.raises(HostProblem, match="runs with the docker engine"):
        require_same_engine(embedded)

    stack.down()
    require_same_engine(embedded)


def test_logs_name_their_service_and_end_when_they_are_not_followed(stack: SmallStack) -> None:
    stack.up()
    every = list(stack.engine.logs(stack.name, None, 100, follow=False))

    assert "model: fetched" in every
    assert "inference: loading" in every
    with pytest.raises(UsageError, match="no service nonsense"):
        stack.engine.logs(stack.name, "nonsense", 10, follow=False)


def test_a_followed_log_goes_on_and_ends_with_its_reader(stack: SmallStack) -> None:
    stack.up()
    followed = stack.engine.logs(stack.name, "inference", 10, follow=True)
    assert next(followed) == "loading"

    followed.close()  # type: ignore[attr-defined]


def test_no_docker_engine_is_a_host_problem(
    stack: SmallStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as away:
        away.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
        with pytest.raises(HostProblem, match="does not answer"):
            stack.engine.up(stack.plan(), Silent())


def test_offline_a_stack_starts_from_the_images_that_are_here(stack: SmallStack) -> None:
    assert stack.up(msgspec.structs.replace(stack.plan(), offline=True)).healthy


def test_offline_an_image_that_is_not_here_is_not_pulled(stack: SmallStack) -> None:
    plan = stack.plan()
    absent = "zluda-stack-test/absent:1"
    services = tuple(msgspec.structs.replace(one, image=absent) for one in plan.services)
    with pytest.raises(StackError, match="No such image"):
        stack.up(msgspec.structs.replace(plan, services=services, offline=True))
