"""`up`, `down`, `restart`, `status`, `logs` where no stack has to run for real."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.command_line import NO_GPU, Outcome, run, settle, user_file, write
from tests.unit.planning import host, plan_for
from zluda_stack import keys, locks, paths
from zluda_stack.engines.base import StackStatus, State
from zluda_stack.engines.embedded.engine import EmbeddedEngine
from zluda_stack.engines.embedded.state import (
    SERVICES,
    SUPERVISOR,
    ProcessRecord,
    RunRecord,
    StackFolder,
    write_record,
)
from zluda_stack.errors import ExitCode
from zluda_stack.plan.types import Plan, to_json
from zluda_stack.verify import selftest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settle(tmp_path, monkeypatch)
    return tmp_path


def started(name: str) -> StackFolder:
    """The folder of a stack that was started with the plan for a laptop, and does not run."""
    plan = plan_for(host("laptop-without-gpu-or-docker"), name=name)
    folder = StackFolder(paths.stack(name))
    write(folder.plan, to_json(plan))
    keys.ensure_key(name)
    return folder


@pytest.fixture
def two() -> Iterator[StackFolder]:
    """The folder of the stack two, whose supervisor lives, as far as the kernel can tell."""
    folder = started("two")
    lock = locks.take(folder.lock(SUPERVISOR))
    assert lock is not None
    yield folder
    os.close(lock)


@pytest.mark.parametrize("command", ["up", "down", "down --all", "restart"])
@pytest.mark.usefixtures("two")
def test_the_facts_of_another_machine_do_not_act_on_this_one(command: str) -> None:
    told = run("--host-facts", str(NO_GPU), *command.split())

    assert told.code == ExitCode.USAGE
    assert "--host-facts describes another machine" in told.err
    assert run("status", "--name", "two", "--json").json["state"] == "starting"


@pytest.mark.parametrize("command", ["restart", "logs", "connect env", "status"])
def test_a_stack_that_never_was_has_one_exit_code(command: str) -> None:
    told = run(*command.split(), "--name", "nobody")

    assert told.code == ExitCode.ENGINE
    assert "nobody" in told.out + told.err
    assert "`zluda-stack up --name nobody` starts it." in told.out + told.err


def test_taking_down_what_never_was_is_done_already() -> None:
    assert run("down", "--name", "nobody").code == ExitCode.OK


@pytest.mark.usefixtures("two")
def test_a_dry_run_of_down_and_restart_stops_nothing() -> None:
    down = run("down", "--name", "two", "--dry-run")
    everything = run("down", "--all", "--dry-run", "--json")
    restart = run("restart", "--name", "two", "--dry-run")

    assert down.out == "two would be stopped.\n"
    assert everything.json["would_stop"] == {"two": True}
    assert restart.out.splitlines()[1] == "# stop two"
    assert "supervisor" in restart.out
    assert [done.code for done in (down, everything, restart)] == [ExitCode.OK] * 3
    assert run("status", "--name", "two", "--json").json["state"] == "starting"
    assert run("down", "--name", "nobody", "--dry-run").out == "nobody is not running.\n"


@pytest.mark.usefixtures("two")
def test_what_is_no_stack_in_the_folder_of_stacks_is_passed_over() -> None:
    for stranger in ("Not A Name", ".hidden"):
        (paths.stacks() / stranger).mkdir()
    (paths.stacks() / "file").touch()

    assert [one["name"] for one in run("status", "--all", "--json").json] == ["two"]
    assert run("down", "--all", "--dry-run", "--json").json["would_stop"] == {"two": True}


@pytest.mark.parametrize("command", ["down", "status", "logs"])
def test_a_broken_settings_file_does_not_keep_from_a_stack_that_is_named(
    command: str, home: Path
) -> None:
    started("two")
    write(user_file(home), "prot: 1\n")

    told = run(command, "--name", "two")

    assert told.code != ExitCode.USAGE
    assert "prot" not in told.err


@pytest.mark.parametrize("command", ["down", "status", "logs"])
def test_a_broken_settings_file_is_warned_of_and_the_other_one_names_the_stack(
    command: str, home: Path
) -> None:
    started("two")
    write(user_file(home), "prot: 1\n")
    write(Path("zluda-stack.yml"), "name: two\n")

    told = run(command)

    assert told.code != ExitCode.USAGE
    assert told.err.startswith(f"warning: {user_file(home)}:1: there is no setting 'prot'")
    assert command == "logs" or "two" in told.out


def test_a_wrong_variable_is_no_broken_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZLUDA_STACK_NAME", "Not A Name")

    assert run("down").code == ExitCode.USAGE


def test_the_status_of_a_crash_has_the_next_step_above_a_short_log() -> None:
    folder = started("two")
    write_record(
        folder,
        RunRecord(
            supervisor=1,
            processes={
                name: ProcessRecord(pid=1, exit_status=1) for name in SERVICES if name != SUPERVISOR
            },
        ),
    )
    for service in SERVICES:
        folder.log(service).write_text("".join(f"line {number}\n" for number in range(50)))

    lines = run("status", "--name", "two").out.splitlines()

    told = [line for line in lines if ": line " in line]
    hint = lines.index("`zluda-stack up --name two` starts it.")
    assert 3 <= len(told) <= 10
    assert told[-1].endswith("line 49")
    assert hint < lines.index(told[0])


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("command", ["up", "down", "restart"])
def test_ctrl_c_before_anything_was_done_says_how_to_see_what_runs(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started("two")
    monkeypatch.setattr("zluda_stack.engines.engine_for", interrupt)

    told = run(command, "--name", "two")

    assert told.code == ExitCode.INTERRUPTED
    assert told.err.splitlines()[-2:] == [
        "error: interrupted",
        "hint: `zluda-stack status --name two` shows what runs.",
    ]


def test_ctrl_c_during_the_self_test_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_for(host("laptop-without-gpu-or-docker"), name="two")
    monkeypatch.setattr(selftest, "run", interrupt)

    def brought_up(*_: object, **__: object) -> object:
        return EmbeddedEngine().status("two")

    def same_plan(*_: object) -> Plan:
        return plan

    monkeypatch.setattr(EmbeddedEngine, "up", brought_up)
    monkeypatch.setattr("zluda_stack.cli.plan.resolve", same_plan)

    told = run("up")

    assert told.code == ExitCode.INTERRUPTED
    assert "the stack two is left running" in told.err
    assert "`zluda-stack down --name two` stops it." in told.err


@pytest.mark.parametrize(("follow", "error"), [("-f", ""), ("--tail=1", "error: interrupted\n")])
def test_ctrl_c_is_the_quiet_end_of_a_log_that_is_followed(
    follow: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started("default")
    monkeypatch.setattr(EmbeddedEngine, "logs", interrupt)

    told = run("logs", follow)

    assert (told.code, told.out, told.err) == (ExitCode.INTERRUPTED, "", error)


class FakeHealthyEngine(EmbeddedEngine):
    """An embedded engine whose stack is always healthy and as planned."""

    def is_up(self, plan: Plan) -> bool:
        return plan.name == "two"


def dry_up(*more: str) -> Outcome:
    return run("up", "--dry-run", "--engine", "embedded", "--name", "two", *more)


def test_a_dry_run_says_that_a_stack_that_runs_as_planned_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = dry_up("--json").json
    monkeypatch.setattr("zluda_stack.engines.embedded.engine.EmbeddedEngine", FakeHealthyEngine)
    after = dry_up("--json").json

    assert (before["already_running"], bool(before["commands"])) == (False, True)
    assert after == {"already_running": True, "build": None, "commands": [], "download": []}
    assert dry_up().out.endswith("nothing would be done.\n")


def running_with_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stack two, which speaks HTTPS, runs as far as the engine can tell."""
    files = {"tls_cert": "/keep/chain.pem", "tls_key": "/keep/key.pem"}
    plan = plan_for(host("laptop-without-gpu-or-docker"), name="two", **files)
    write(paths.stack("two") / "plan.json", to_json(plan))
    now = StackStatus(name="two", engine="embedded", state=State.RUNNING, healthy=True)

    def status(*_: object) -> StackStatus:
        return now

    def same_settings(*_: object) -> Plan:
        return plan_for(host("laptop-without-gpu-or-docker"), name="two")

    def here(*_: object, **__: object) -> None:
        """The model is here already."""

    monkeypatch.setattr(EmbeddedEngine, "status", status)
    monkeypatch.setattr("zluda_stack.cli.plan.resolve", same_settings)
    monkeypatch.setattr("zluda_stack.cli.download.agree", here)


def test_up_that_would_end_tls_says_so_and_does_nothing_unasked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running_with_tls(monkeypatch)
    monkeypatch.setattr(EmbeddedEngine, "up", interrupt)

    told = run("up", "--name", "two")

    assert told.code == ExitCode.USAGE
    assert "warning: changes the running stack: endpoint https://" in told.err
    assert "(tls_cert is not set any more)" in told.err
    assert "put tls_cert and tls_key into zluda-stack.yml; --yes takes TLS away." in told.err


def test_yes_lets_up_end_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    running_with_tls(monkeypatch)
    monkeypatch.setattr(EmbeddedEngine, "up", interrupt)  # as far as this test goes

    told = run("up", "--name", "two", "--yes")

    assert told.code == ExitCode.INTERRUPTED
    assert "(tls_cert is not set any more)" in told.err


def test_a_dry_run_says_what_would_change(monkeypatch: pytest.MonkeyPatch) -> None:
    running_with_tls(monkeypatch)

    told = run("up", "--name", "two", "--dry-run")

    assert told.code == ExitCode.OK
    assert "warning: changes the running stack: endpoint https://" in told.err
