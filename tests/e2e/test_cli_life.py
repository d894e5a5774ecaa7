"""`up`, `status`, `logs`, `restart` and `down` as a user types them, with the real engine."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import eventually, free_port
from tests.unit.command_line import Outcome, run, settle
from zluda_stack import paths
from zluda_stack.errors import ExitCode
from zluda_stack.verify import selftest

pytestmark = pytest.mark.embedded


class Typed:
    """Commands on one stack of the user's own model file."""

    def __init__(self, model: Path) -> None:
        self.model = model
        self.port = free_port()

    def up(self, *more: str) -> Outcome:
        settings = ("--model", str(self.model), "--port", str(self.port), "--threads", "1")
        return run("up", "--engine", "embedded", "--context", "2048", *settings, *more)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
def typed(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Typed]:
    settle(tmp_path, monkeypatch)
    yield Typed(gguf)
    run("down", "--all")


def test_up_says_what_it_will_do_proves_that_it_did_and_how_to_go_on(typed: Typed) -> None:
    done = typed.up()

    assert done.code == ExitCode.OK, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("CPU only, with the embedded engine")
    proofs = [line for line in lines if line.startswith("✓ /v1/")]
    assert len(proofs) == 4
    assert all(line.partition("): ")[2] for line in proofs)
    assert "- tools for Claude Code" in done.out
    assert "- context for Claude Code" in done.out
    assert f"Running: {typed.url} serves" in done.out
    assert 'eval "$(zluda-stack connect env)"' in done.out
    assert "zluda-stack down" in done.out


def test_a_second_up_leaves_a_healthy_stack_alone(typed: Typed) -> None:
    first = typed.up("--json", "--no-selftest")
    second = typed.up("--json")

    assert not first.json["already_running"]
    assert second.json["already_running"]
    assert second.json["status"]["services"] == first.json["status"]["services"]
    assert second.json["self_test"] == []
    assert typed.up("--dry-run", "--json").json["already_running"]
    assert not typed.up("--dry-run", "--json", "--context", "1024").json["already_running"]


def test_under_json_only_facts_go_to_stdout(typed: Typed) -> None:
    done = typed.up("--json")

    assert done.json["status"]["healthy"]
    assert [check["ok"] for check in done.json["self_test"]] == [True] * 4
    assert all(check["text"] for check in done.json["self_test"])
    assert [one["verdict"] for one in done.json["coding"]] == ["limit", "limit"]
    assert done.err.splitlines()[0].startswith("CPU only")


def test_a_failed_self_test_is_a_failure_of_the_engine(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = selftest.Check(
        name="/v1/messages", model="any", ok=False, seconds=0.1, detail="HTTP 500: broken"
    )

    def fake_run(*_: object) -> tuple[selftest.Check, ...]:
        return (wrong,)

    monkeypatch.setattr(selftest, "run", fake_run)

    done = typed.up()

    assert done.code == ExitCode.ENGINE
    assert "✗ /v1/messages (0.1 s): HTTP 500: broken" in done.out
    assert "error: the self-test failed: /v1/messages: HTTP 500: broken" in done.err
    assert "Running" not in done.out


def test_status_follows_the_life_of_the_stack(typed: Typed) -> None:
    before = run("status")
    assert before.code == ExitCode.ENGINE
    assert "stopped" in before.out

    typed.up("--no-selftest")
    running = run("status")
    assert running.code == ExitCode.OK
    assert f"{typed.url} serves" in running.out
    assert run("status", "--json").json["state"] == "running"

    assert run("down").out == "default is stopped.\n"
    assert run("down").out == "default was not running.\n"
    assert run("status", "--json").code == ExitCode.ENGINE


def test_a_killed_server_is_told_with_its_log_and_up_heals_it(typed: Typed) -> None:
    services = typed.up("--no-selftest", "--json").json["status"]["services"]
    inference = next(one for one in services if one["name"] == "inference")
    os.kill(inference["pid"], signal.SIGKILL)

    assert eventually(lambda: "crashed" in run("status").out)
    crashed = run("status")
    assert crashed.code == ExitCode.ENGINE
    assert "inference: serving" in crashed.out
    assert "`zluda-stack up` starts it." in crashed.out
    healed = typed.up("--json")
    assert healed.json["status"]["healthy"]
    assert not healed.json["already_running"]


def test_restart_starts_the_stack_as_it_was(typed: Typed) -> None:
    before = typed.up("--no-selftest", "--json").json["status"]

    after = run("restart", "--no-selftest", "--json").json["status"]

    assert after["healthy"]
    assert (after["url"], after["context"]) == (before["url"], before["context"])
    assert after["services"] != before["services"]


def test_two_stacks_are_listed_and_stopped_together(gguf: Path, typed: Typed) -> None:
    typed.up("--no-selftest")
    assert Typed(gguf).up("--no-selftest", "--name", "two").code == ExitCode.OK

    listed = run("status", "--all", "--json")
    assert listed.code == ExitCode.OK
    assert [(one["name"], one["healthy"]) for one in listed.json] == [
        ("default", True),
        ("two", True),
    ]
    table = run("status", "--all").out
    assert f"{typed.url} " in table

    assert run("down", "--all", "--json").json == {"stopped": {"default": True, "two": True}}


def test_logs_can_be_asked_for_one_service_and_a_number_of_lines(typed: Typed) -> None:
    typed.up("--no-selftest")

    both = run("logs").out.splitlines()
    assert {line.partition(": ")[0] for line in both} >= {"inference", "endpoint"}
    assert len(run("logs", "inference", "--tail", "1").out.splitlines()) == 1
    wrong = run("logs", "inferense")
    assert wrong.code == ExitCode.USAGE
    assert "inference" in wrong.err


def test_a_dry_run_prints_commands_and_starts_nothing(typed: Typed) -> None:
    done = typed.up("--dry-run")

    assert done.code == ExitCode.OK
    commands = [shlex.split(line) for line in done.out.splitlines()[1:]]
    assert any(str(typed.port) in command for command in commands)
    assert run("status", "--json").json["state"] == "stopped"


def test_a_dry_run_names_the_download_of_a_model_that_is_not_there(typed: Typed) -> None:
    done = run("up", "--engine", "embedded", "--port", str(typed.port), "--dry-run", "--json")

    assert done.json["download"]
    assert done.json["commands"]


def test_two_stacks_started_at_once_get_a_port_each(typed: Typed) -> None:
    settings = ("--engine", "embedded", "--model", str(typed.model), "--threads", "1")
    starting = [
        subprocess.Popen(
            [sys.executable, "-m", "zluda_stack", "up", "--name", name, "--no-selftest", *settings],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in ("a", "b")
    ]
    said = [process.communicate()[0] for process in starting]

    assert [process.returncode for process in starting] == [0, 0], said
    stacks = run("status", "--all", "--json").json
    assert [stack["healthy"] for stack in stacks] == [True, True]
    assert len({stack["url"] for stack in stacks}) == 2


@pytest.mark.parametrize("content", ["{", '{"schema": 99}'])
def test_a_running_stack_whose_plan_cannot_be_read_heals_on_its_port(
    typed: Typed, content: str
) -> None:
    typed.up("--no-selftest")
    (paths.stack("default") / "plan.json").write_text(content)

    refused = run("restart")
    assert refused.code == ExitCode.ENGINE
    assert "plan.json is damaged" in refused.err
    assert "zluda-stack up" in refused.err

    settings = ("--engine", "embedded", "--model", str(typed.model), "--threads", "1")
    healed = run("up", "--no-selftest", *settings)
    assert healed.code == ExitCode.OK, healed.err
    assert run("status", "--json").json["url"] == typed.url
