"""A login of the page that cannot be used is said before anything is started, by every command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.command_line import run, settle, write
from tests.unit.planning import machine, plan_for
from zluda_stack import keys, paths
from zluda_stack.cli import context
from zluda_stack.engines.docker.state import StackFolder
from zluda_stack.errors import ExitCode
from zluda_stack.plan.types import to_json

WEBUI = ("--profile", "webui", "--gpu", "none")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home on a machine that has Docker, as far as its facts tell."""
    settle(tmp_path, monkeypatch)
    monkeypatch.setattr(context, "facts", lambda *_: machine())
    return tmp_path


def wrong(home: Path, text: str | None) -> tuple[Path, str]:
    """A login file that holds `text`, or is missing, and what is said of it."""
    login = home / "login"
    if text is None:
        return login, f"cannot read {login}: No such file or directory"
    login.write_text(text)
    return login, f"entry 1 of {login} is not user:password"


@pytest.mark.parametrize("text", [None, "ann\n"])
def test_plan_render_and_up_say_the_same_of_a_login_that_cannot_be_used(
    home: Path, text: str | None
) -> None:
    login, said = wrong(home, text)
    words = (*WEBUI, "--webui-login", str(login))
    planned = run("plan", "--json", *words)
    assert [one["message"] for one in planned.json["unmet"]] == [said]
    assert f"this machine lacks: {said}" in run("plan", *words).out
    assert f"warning: {said}" in run("render", "--out", str(home / "out"), *words).err
    for dry in ((), ("--dry-run",)):
        up = run("up", *dry, *words)
        assert up.code == ExitCode.HOST
        assert f"error: {said}" in up.err
        assert "docker" not in up.out.partition("\n")[2]


@pytest.mark.timeout(20)
def test_a_login_that_is_no_file_is_not_waited_for(home: Path) -> None:
    pipe = home / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, home, Path("/dev/zero")):
        told = run("plan", "--json", *WEBUI, "--webui-login", str(path))
        assert [one["message"] for one in told.json["unmet"]] == [f"{path} is no file"]


def test_restart_looks_at_it_before_anything_is_stopped(home: Path) -> None:
    login, said = wrong(home, None)
    plan = plan_for(machine(), profile="webui", gpu="none", webui_login=str(login))
    write(StackFolder(paths.stack("default")).plan, to_json(plan))
    keys.ensure_key("default")
    for dry in ((), ("--dry-run",)):
        told = run("restart", *dry)
        assert told.code == ExitCode.HOST
        assert f"error: {said}" in told.err


def test_a_login_that_can_be_used_is_not_spoken_of(home: Path) -> None:
    login = home / "login"
    login.write_text("ann:secret\n")
    words = (*WEBUI, "--webui-login", str(login))
    assert run("plan", "--json", *words).json["unmet"] == []
    assert "login" not in run("render", "--out", str(home / "out"), *words).err


def test_the_facts_of_another_machine_say_nothing_of_files_here(home: Path) -> None:
    facts = Path(__file__).parents[1] / "cases/laptop-without-gpu-or-docker.json"
    words = (*WEBUI, "--webui-login", str(home / "absent"))
    unmet = run("--host-facts", str(facts), "plan", "--json", *words).json["unmet"]
    assert "absent" not in str(unmet)
