"""The life of an embedded stack: start, crash, heal, interruption, stop."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import openai
import psutil
import pytest
import requests

from tests.e2e.conftest import EmbeddedStack, eventually, own_xdg_folders
from zluda_stack import paths
from zluda_stack.engines.base import State
from zluda_stack.engines.embedded.state import running_stacks
from zluda_stack.errors import EngineFailure, ExitCode, HostProblem
from zluda_stack.progress import Silent

pytestmark = pytest.mark.embedded


def answers(stack: EmbeddedStack) -> bool:
    """True when a completion comes back."""
    response = requests.post(
        f"{stack.url}/v1/chat/completions",
        json={"model": "default", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]},
        headers={"Authorization": f"Bearer {stack.key}"},
        timeout=60,
    )
    return response.ok and bool(response.json()["choices"][0]["message"]["content"])


def gone(pid: int) -> bool:
    """True when no process with `pid` runs any more (one that nobody waited for does not)."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def all_gone(pids: Iterable[int]) -> bool:
    return all(gone(pid) for pid in pids)


def with_model(stack: EmbeddedStack, model: Path) -> None:
    changed = msgspec.structs.replace(stack.plan.model, path=str(model))
    stack.plan = msgspec.structs.replace(stack.plan, model=changed)


def test_a_stack_outlives_the_command_that_started_it(stack: EmbeddedStack, tmp_path: Path) -> None:
    command = stack.bring_up_elsewhere(tmp_path)
    output, _ = command.communicate()
    assert command.returncode == 0, output
    assert answers(stack)
    supervisor = stack.pids()["supervisor"]
    assert os.getsid(supervisor) not in {os.getsid(0), command.pid}


def test_a_second_up_changes_nothing_and_down_ends_every_process(stack: EmbeddedStack) -> None:
    first = stack.up()
    assert first.state is State.RUNNING
    assert first.healthy
    assert stack.up() == first
    pids = [one.pid for one in first.services if one.pid is not None]
    assert len(pids) == 3
    assert stack.down()
    assert eventually(lambda: all_gone(pids))
    assert stack.status().state is State.STOPPED
    assert not stack.down()


def test_two_ups_at_the_same_time_bring_up_one_stack(stack: EmbeddedStack, tmp_path: Path) -> None:
    commands = [stack.bring_up_elsewhere(tmp_path) for _ in range(2)]
    outputs = [command.communicate()[0] for command in commands]
    assert [command.returncode for command in commands] == [0, 0], outputs
    assert stack.status().healthy


def test_two_stacks_live_side_by_side(stack: EmbeddedStack, gguf: Path) -> None:
    other = EmbeddedStack("two", gguf)
    try:
        stack.up()
        other.up()
        assert {(one.name, one.port) for one in running_stacks(paths.stacks())} == {
            (one.name, one.plan.endpoint.port) for one in (stack, other)
        }
        assert stack.key != other.key
        assert stack.down()
        assert answers(other)
        assert [one.name for one in running_stacks(paths.stacks())] == ["two"]
    finally:
        other.down()


def test_a_killed_inference_process_is_told_at_once_and_up_heals(stack: EmbeddedStack) -> None:
    before = stack.up()
    os.kill(stack.pids()["inference"], signal.SIGKILL)
    assert eventually(lambda: stack.status().state is State.CRASHED, 5)
    status = stack.status()
    crashed = {one.name: one for one in status.services}["inference"]
    assert not status.healthy
    assert crashed.state is State.CRASHED
    assert any("listening" in line for line in crashed.log_tail)
    assert eventually(
        lambda: {o.name: o.exit_status for o in stack.status().services}["inference"] == -9
    )
    health = requests.get(f"{stack.url}/health", timeout=10)
    assert health.status_code == 503
    assert "not running" in health.json()["message"]
    healed = stack.up()
    assert healed.healthy
    assert healed.services != before.services
    assert answers(stack)


def test_a_server_that_dies_in_mid_stream_is_an_error_for_the_client(stack: EmbeddedStack) -> None:
    stack.up()
    client = openai.OpenAI(base_url=f"{stack.url}/v1", api_key=stack.key, max_retries=0)
    stream = client.chat.completions.create(
        model="default",
        max_tokens=1500,
        messages=[{"role": "user", "content": "Hi"}],
        stream=True,
        extra_body={"ignore_eos": True},
    )
    next(stream)
    os.kill(stack.pids()["inference"], signal.SIGKILL)
    with pytest.raises(openai.APIError, match="stopped while it worked"):
        list(stream)


def test_a_killed_supervisor_leaves_no_orphan_and_the_next_up_takes_the_same_port(
    stack: EmbeddedStack,
) -> None:
    stack.up()
    pids = stack.pids()
    os.kill(pids["supervisor"], signal.SIGKILL)
    assert eventually(lambda: stack.status().state is State.CRASHED, 5)
    assert eventually(lambda: all_gone(pids.values()))
    assert running_stacks(paths.stacks()) == ()
    assert stack.up().healthy
    assert set(stack.pids().values()).isdisjoint(pids.values())


def test_a_supervisor_killed_while_a_model_loads_leaves_no_orphan(
    stack: EmbeddedStack, endless_model: Path, tmp_path: Path
) -> None:
    with_model(stack, endless_model)
    command = stack.bring_up_elsewhere(tmp_path)
    assert eventually(lambda: "inference: 0.00" in "\n".join(_all_logs(stack)))
    pids = stack.pids()
    assert stack.status().state is State.STARTING
    os.kill(pids["supervisor"], signal.SIGKILL)
    assert eventually(lambda: all_gone(pids.values()))
    output, _ = command.communicate()
    assert command.returncode == ExitCode.ENGINE
    assert "the supervisor process ended" in output


def _all_logs(stack: EmbeddedStack) -> list[str]:
    if not stack.folder.is_dir():
        return []
    return list(stack.engine.logs(stack.name, None, 100, follow=False))


def test_ctrl_c_while_a_model_loads_leaves_the_stack_stopped(
    stack: EmbeddedStack, endless_model: Path, tmp_path: Path
) -> None:
    with_model(stack, endless_model)
    command = stack.bring_up_elsewhere(tmp_path)
    assert command.stdout is not None
    assert "loading smollm2-135m" in command.stdout.readline()
    pids = stack.pids()
    command.send_signal(signal.SIGINT)
    output, _ = command.communicate()
    assert command.returncode == ExitCode.INTERRUPTED
    assert output == "interrupted; the stack one is stopped\n"
    assert stack.status().state is State.STOPPED
    assert eventually(lambda: all_gone(pids.values()))


def test_an_impatient_second_ctrl_c_leaves_the_stack_stopped_too(
    stack: EmbeddedStack, endless_model: Path, tmp_path: Path
) -> None:
    with_model(stack, endless_model)
    command = stack.bring_up_elsewhere(tmp_path)
    assert command.stdout is not None
    assert "loading" in command.stdout.readline()
    pids = stack.pids()
    for _ in range(3):
        command.send_signal(signal.SIGINT)
        time.sleep(0.01)
    command.communicate()
    assert stack.status().state is State.STOPPED
    assert eventually(lambda: all_gone(pids.values()))


def test_a_stack_left_loading_by_a_killed_up_can_be_taken_down(
    stack: EmbeddedStack, endless_model: Path, tmp_path: Path
) -> None:
    with_model(stack, endless_model)
    command = stack.bring_up_elsewhere(tmp_path)
    assert command.stdout is not None
    assert "loading" in command.stdout.readline()
    command.kill()
    command.communicate()
    assert stack.status().state is State.STARTING
    assert stack.down()
    assert stack.status().state is State.STOPPED


def test_a_broken_model_file_is_told_at_once_with_the_servers_own_words(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"this is not a model")
    with_model(stack, broken)
    with pytest.raises(EngineFailure) as failure:
        stack.up()
    assert "the inference process ended (exit status 1)" in failure.value.message
    assert "invalid magic characters" in failure.value.message
    assert stack.status().state is State.STOPPED


def test_a_replacement_that_does_not_start_gives_way_to_what_ran_before(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    stack.up()
    good = stack.plan
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"this is not a model")
    with_model(stack, broken)
    with pytest.raises(EngineFailure) as failure:
        stack.up()
    assert "runs again as before" in failure.value.hint
    stack.plan = good
    assert answers(stack)


def test_a_changed_plan_replaces_what_runs(stack: EmbeddedStack) -> None:
    first = stack.up()
    changed = msgspec.structs.replace(stack.plan.model, context=1024)
    stack.plan = msgspec.structs.replace(stack.plan, model=changed)
    second = stack.up()
    assert (first.context, second.context) == (2048, 1024)
    assert second.healthy
    explained = msgspec.structs.replace(stack.plan, headline="The same in other words")
    assert stack.engine.up(explained, Silent()) == second


def test_a_stack_whose_plan_another_version_wrote_is_seen_and_replaced(
    stack: EmbeddedStack,
) -> None:
    stack.up()
    pids = stack.pids()
    (stack.folder / "plan.json").write_text("{}")
    assert stack.status().state is State.RUNNING
    assert stack.up().healthy
    assert eventually(lambda: all_gone(pids.values()))


def test_a_taken_port_is_named_and_nothing_is_started(stack: EmbeddedStack) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", stack.plan.endpoint.port))
        other.listen()
        with pytest.raises(HostProblem) as problem:
            stack.up()
    assert f"port {stack.plan.endpoint.port} on 127.0.0.1 is taken" in problem.value.message
    assert "--port" in problem.value.hint
    assert stack.status().state is State.STOPPED


def test_a_state_folder_too_long_for_a_socket_path_works(
    stack: EmbeddedStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_xdg_folders(monkeypatch, tmp_path / ("x" * 120))
    try:
        stack.up()
        assert len(str(stack.folder / "inference.sock")) > 107
        assert answers(stack)
    finally:
        stack.down()


def test_the_users_folder_cannot_shadow_a_module(
    stack: EmbeddedStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "argparse.py").write_text("raise SystemExit('shadowed')\n")
    monkeypatch.chdir(tmp_path)
    assert stack.up().healthy


def test_followed_logs_go_on_through_a_restart(stack: EmbeddedStack) -> None:
    stack.up()
    lines: list[str] = []

    def follow() -> None:
        for line in stack.engine.logs(stack.name, "supervisor", 10, follow=True):
            lines.append(line)
            if sum("endpoint started" in each for each in lines) == 2:
                return

    following = threading.Thread(target=follow, daemon=True)
    following.start()
    assert eventually(lambda: bool(lines))
    stack.down()
    stack.up()
    following.join(30)
    assert not following.is_alive()
    assert any(line.endswith("stopped") for line in lines)


def test_a_stack_that_never_was_is_stopped_and_has_no_logs(stack: EmbeddedStack) -> None:
    assert stack.status().state is State.STOPPED
    assert not stack.down()
    with pytest.raises(EngineFailure):
        stack.engine.logs(stack.name, None, 10, follow=False)
    assert not stack.folder.exists()


def test_the_key_stays_the_same_over_down_and_up(stack: EmbeddedStack) -> None:
    stack.up()
    key = stack.key
    stack.down()
    stack.up()
    assert stack.key == key
    assert answers(stack)


def test_a_stack_that_is_only_slow_to_answer_is_not_replaced(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    stack.up()
    pids = stack.pids()
    os.kill(pids["endpoint"], signal.SIGSTOP)
    command = stack.bring_up_elsewhere(tmp_path)
    assert command.stdout is not None
    assert "runs but does not answer" in command.stdout.readline()
    os.kill(pids["endpoint"], signal.SIGCONT)
    output, _ = command.communicate()
    assert command.returncode == 0, output
    assert stack.pids() == pids
