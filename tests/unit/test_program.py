"""Commands in hints and next steps are such that the user can type them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import zluda_stack
from zluda_stack import program
from zluda_stack.program import as_typed, command


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The console script of an installation, run by its path from the folder above it."""
    made = tmp_path / "venv" / "bin" / program.NAME
    made.parent.mkdir(parents=True)
    made.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(made), "up"])
    monkeypatch.setenv("PATH", "/nonexistent")
    return made


def test_a_program_that_the_shell_finds_is_called_by_its_name(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(script.parent))

    assert command("down", "default") == "zluda-stack down"


def test_a_program_that_is_not_on_path_is_called_by_its_shortest_path(script: Path) -> None:
    assert command("down", "default") == "venv/bin/zluda-stack down"
    os.chdir("venv/bin")
    assert command("down", "default") == "./zluda-stack down"
    elsewhere = script.parent.joinpath(*"d" * len(str(script)))
    elsewhere.mkdir(parents=True)
    os.chdir(elsewhere)
    assert command("down", "default") == f"{script} down"


@pytest.mark.usefixtures("script")
def test_another_program_of_that_name_on_path_is_not_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other" / program.NAME
    other.parent.mkdir()
    other.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(other.parent))

    assert as_typed("`zluda-stack plan` says why.") == "`venv/bin/zluda-stack plan` says why."


@pytest.mark.usefixtures("script")
def test_the_stack_is_named_where_it_is_not_the_default_one() -> None:
    assert command("logs", "two") == "venv/bin/zluda-stack logs --name two"


def test_a_path_with_spaces_is_quoted(script: Path, tmp_path: Path) -> None:
    script.parent.rename(tmp_path / "my venv")
    sys.argv[0] = str(tmp_path / "my venv" / program.NAME)

    assert command("down", "default") == "'my venv/zluda-stack' down"


def test_the_module_run_by_python_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Path(zluda_stack.__file__).with_name("__main__.py")
    monkeypatch.setattr(sys, "argv", [str(module)])

    words = command("down", "default")

    assert words.endswith(" -m zluda_stack down")
    assert (
        subprocess.run(["sh", "-c", f"{words} --help"], capture_output=True, check=False).returncode
        == 0
    )
