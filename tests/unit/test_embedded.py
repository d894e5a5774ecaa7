"""The parts of the embedded engine that need no model server."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from zluda_stack import locks, paths
from zluda_stack.engines import logs, ports
from zluda_stack.engines.embedded import commands
from zluda_stack.engines.embedded.engine import EmbeddedEngine, same_run
from zluda_stack.engines.embedded.state import (
    SUPERVISOR,
    RunRecord,
    StackFolder,
    read_plan,
    read_record,
    running_stacks,
    write_record,
)
from zluda_stack.errors import HostProblem
from zluda_stack.host.facts import RunningStack
from zluda_stack.plan.types import EndpointPlan, ModelPlan, Plan, to_json
from zluda_stack.progress import Silent


def plan(name: str, *, bind: str = "127.0.0.1", port: int = 4242) -> Plan:
    return Plan(
        name=name,
        engine="embedded",
        headline="",
        gpus=(),
        skipped=(),
        model=ModelPlan(
            name="model", catalogued=None, path="/m.gguf", context=512, trained_context=None
        ),
        endpoint=EndpointPlan(bind=bind, port=port, host=bind),
        client=None,
        threads=None,
    )


def planned(stacks: Path, name: str, port: int) -> StackFolder:
    folder = StackFolder(stacks / name)
    folder.root.mkdir(parents=True)
    folder.plan.write_bytes(to_json(plan(name, port=port)))
    return folder


def held_lock(folder: StackFolder) -> int:
    descriptor = locks.take(folder.lock(SUPERVISOR))
    assert descriptor is not None
    return descriptor


def test_running_stacks_are_those_whose_supervisor_holds_its_lock(tmp_path: Path) -> None:
    running, stopped = planned(tmp_path, "b", 2), planned(tmp_path, "a", 1)
    stopped.lock(SUPERVISOR).touch()
    planned(tmp_path, "never-started", 3)
    descriptor = held_lock(running)
    assert running_stacks(tmp_path) == (RunningStack(name="b", port=2),)
    os.close(descriptor)
    assert running_stacks(tmp_path) == ()


def test_the_model_server_is_told_the_batch_of_the_plan() -> None:
    fitted = plan("a")
    fitted = msgspec.structs.replace(fitted, model=msgspec.structs.replace(fitted.model, batch=256))
    command = commands.inference(fitted, Path("/m.gguf"))
    assert command[command.index("--batch") + 1] == "256"


def test_folders_with_damaged_files_are_no_running_stacks(tmp_path: Path) -> None:
    damaged = planned(tmp_path, "damaged", 1)
    damaged.plan.write_bytes(b'{"endpoint": {"port": ')
    descriptor = held_lock(damaged)
    assert running_stacks(tmp_path) == ()
    assert running_stacks(tmp_path / "missing") == ()
    os.close(descriptor)


def test_a_running_stack_whose_plan_is_damaged_is_known_by_its_record(tmp_path: Path) -> None:
    folder = planned(tmp_path, "damaged", 1)
    folder.plan.write_bytes(b"{")
    write_record(folder, RunRecord(supervisor=7, port=2))
    descriptor = held_lock(folder)
    assert running_stacks(tmp_path) == (RunningStack(name="damaged", port=2),)
    os.close(descriptor)


def test_asking_for_running_stacks_imports_nothing_heavy() -> None:
    script = (
        "import sys, zluda_stack.engines.embedded.state\n"
        "print(sorted({'psutil', 'requests', 'httpx', 'docker', 'xllamacpp'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"[]\n"


def test_a_record_and_a_plan_are_read_as_written_and_damaged_ones_are_none(tmp_path: Path) -> None:
    folder = planned(tmp_path, "one", 1)
    record = RunRecord(supervisor=7, draining=True)
    write_record(folder, record)
    assert read_record(folder) == record
    assert read_plan(folder) == plan("one", port=1)
    folder.record.write_bytes(b"{")
    folder.plan.write_bytes(b"{}")
    assert read_record(folder) is None
    assert read_plan(folder) is None


def test_a_lock_is_held_by_its_heirs_until_the_last_has_ended(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not locks.held(lock)
    descriptor = locks.take(lock)
    assert descriptor is not None
    heir = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(descriptor,)
    )
    os.close(descriptor)
    assert locks.held(lock)
    assert locks.take(lock, patience=0) is None
    heir.communicate(b"\n")
    assert not locks.held(lock)


def test_a_state_folder_that_is_none_is_a_host_problem_for_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    paths.stacks().parent.mkdir()
    paths.stacks().write_text("a file where the folder should be")
    engine = EmbeddedEngine()
    with pytest.raises(HostProblem, match="cannot read"):
        engine.status("one")
    with pytest.raises(HostProblem, match="cannot use"):
        engine.up(plan("one"), Silent())
    assert not engine.down("one", Silent())
    assert running_stacks(paths.stacks()) == ()


def test_who_only_asks_is_not_taken_for_a_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with lock.open("w") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        assert not locks.held(lock)


def test_a_second_command_is_told_that_it_waits_and_then_goes_on(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    descriptor = locks.take(lock)
    assert descriptor is not None
    waited = []

    def release() -> None:
        waited.append(True)
        os.close(descriptor)

    with locks.locked(lock, release):
        assert locks.held(lock)
    assert waited == [True]
    assert not locks.held(lock)


def test_a_second_supervisor_of_the_same_stack_is_refused(tmp_path: Path) -> None:
    folder = planned(tmp_path, "one", 1)
    descriptor = held_lock(folder)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "zluda_stack.engines.embedded.supervisor"),
            *(str(folder.root), "/m.gguf"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(descriptor)
    assert done.returncode == 1
    assert done.stderr == f"another supervisor owns {folder.root}\n"


def test_a_tethered_process_ends_with_its_supervisor_even_while_it_keeps_the_interpreter_lock(
    tmp_path: Path,
) -> None:
    (tmp_path / "busy.py").write_text(
        "import re\nprint('busy', flush=True)\nre.match('(a+)+$', 'a' * 60 + 'b')\n"
    )
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "zluda_stack.engines.embedded.tether", str(read_end), "busy"],
        cwd=tmp_path,
        pass_fds=(read_end,),
        stdout=subprocess.PIPE,
    )
    os.close(read_end)
    assert process.stdout is not None
    assert process.stdout.readline() == b"busy\n"
    os.close(write_end)
    assert process.wait(30) == -signal.SIGKILL


def test_a_tether_that_is_cut_before_it_is_tied_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "idle.py").write_text("import time\ntime.sleep(3600)\n")
    read_end, write_end = os.pipe()
    os.close(write_end)
    process = subprocess.Popen(
        [sys.executable, "-m", "zluda_stack.engines.embedded.tether", str(read_end), "idle"],
        cwd=tmp_path,
        pass_fds=(read_end,),
    )
    os.close(read_end)
    assert process.wait(30) == -signal.SIGKILL


def test_a_fresh_log_keeps_the_one_before(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    for run in (b"first\n", b"second\n", b"third\n"):
        descriptor = logs.open_fresh(log)
        os.write(descriptor, run)
        os.close(descriptor)
    assert logs.tail(log, 10) == ("third",)
    assert logs.tail(logs.previous(log), 10) == ("second",)


def test_the_tail_of_a_log_is_its_last_lines_whatever_their_bytes(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    assert logs.tail(log, 5) == ()
    log.write_bytes(b"one\ntwo\nbroken \xff byte\nunfinished")
    assert logs.tail(log, 2) == ("broken \ufffd byte", "unfinished")
    assert logs.tail(log, 0) == ()


def test_a_follower_reads_whole_lines_once_and_through_the_change_of_the_file(
    tmp_path: Path,
) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"1\n2\n3\n")
    follower = logs.Follower(log, lines=2)
    assert list(follower.read()) == ["2", "3"]
    with log.open("ab") as handle:
        handle.write(b"4\nhal")
    assert list(follower.read()) == ["4"]
    with log.open("ab") as handle:
        handle.write(b"f\nlast words")
    descriptor = logs.open_fresh(log)
    os.write(descriptor, b"new run\n")
    os.close(descriptor)
    assert list(follower.read()) == ["half", "last words", "new run"]
    assert list(follower.read()) == []


def test_a_follower_waits_for_a_log_that_does_not_exist_yet(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    follower = logs.Follower(log, lines=2)
    assert list(follower.read()) == []
    log.write_bytes(b"1\n2\n3\n")
    assert list(follower.read()) == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("bind", "told"),
    [
        ("203.0.113.7", "203.0.113.7 is not an address of this machine"),
        ("256.256.256.256", "256.256.256.256 is not an address"),
        ("x" * 80, "is not an address"),
    ],
)
def test_an_address_that_cannot_be_listened_on_is_named(bind: str, told: str) -> None:
    with pytest.raises(HostProblem, match=told) as problem:
        ports.require_free(plan("one", bind=bind).endpoint)
    assert "--bind" in problem.value.hint


@pytest.mark.parametrize("taken", ["127.0.0.1", "0.0.0.0"])  # noqa: S104
def test_a_port_taken_on_this_or_every_address_is_named(taken: str) -> None:
    with socket.socket() as other:
        other.bind((taken, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(HostProblem, match=f"port {port} on 127.0.0.1 is taken"):
            ports.require_free(plan("one", port=port).endpoint)


def test_a_port_whose_last_connection_has_just_ended_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            accepted.close()  # this side closes first and so stays in TIME_WAIT
            assert client.recv(1) == b""
    ports.require_free(plan("one", port=port).endpoint)


def test_a_plan_that_differs_in_words_only_is_the_same_run() -> None:
    current = plan("one")
    assert same_run(current, msgspec.structs.replace(current, headline="Other words"))
    assert not same_run(current, msgspec.structs.replace(current, threads=3))
    assert not same_run(current, plan("one", port=4243))
