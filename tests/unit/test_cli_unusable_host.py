"""Output that cannot be written and folders that cannot be entered: this host's, not bugs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.command_line import settle
from zluda_stack.errors import ExitCode

PROGRAM = [sys.executable, "-m", "zluda_stack"]
FULL = Path("/dev/full")
NO_SPACE = "error: cannot write the output: No space left on device\nhint: Send it elsewhere.\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settle(tmp_path, monkeypatch)
    return tmp_path


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", ["--help", "config show", "config show --json", "explain"])
def test_a_full_disk_is_told_in_two_lines_and_nothing_else(arguments: str) -> None:
    with FULL.open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, *arguments.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert (done.returncode, done.stderr) == (ExitCode.HOST, NO_SPACE)


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_an_error_that_json_cannot_tell_on_a_full_disk_is_still_an_error() -> None:
    with FULL.open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, "config", "get", "prot", "--json"], stdout=full, stderr=full, check=False
        )

    assert done.returncode == ExitCode.HOST


def without_privileges(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The program without root's right to read everything."""
    drop: list[str] = []
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("root cannot drop its rights without setpriv")
        drop = [setpriv, "--bounding-set=-all", "--inh-caps=-all"]
    return subprocess.run(
        [*drop, *PROGRAM, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "arguments",
    [
        *("plan", "doctor", "up", "up --dry-run", "status", "status --all", "logs", "restart"),
        *("down", "down --all", "connect env", "models list", "models verify", "models rm smol"),
    ],
)
def test_a_folder_that_may_not_be_entered_is_named(
    arguments: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbidden = home / "forbidden"
    (forbidden / "zluda-stack" / "stacks" / "default").mkdir(parents=True)
    for kind in ("STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(forbidden))
    forbidden.chmod(0)
    try:
        told = without_privileges(*arguments.split())
    finally:
        forbidden.chmod(0o700)

    error, hint = told.stderr.splitlines()[-2:]
    assert told.returncode == ExitCode.HOST
    assert str(forbidden) in error
    assert "Permission denied" in error
    assert hint.startswith("hint: Check the folder's owner")


@pytest.mark.parametrize("arguments", ["status --all", "down --all", "models list"])
def test_folders_of_others_are_not_taken_for_empty_ones(arguments: str, home: Path) -> None:
    kept = [home / "state/zluda-stack/stacks", home / "data/zluda-stack/models/names"]
    for folder in kept:
        folder.mkdir(parents=True)
        folder.chmod(0)
    try:
        told = without_privileges(*arguments.split())
    finally:
        for folder in kept:
            folder.chmod(0o700)

    assert told.returncode == ExitCode.HOST, told.stdout
    assert "Permission denied" in told.stderr


def test_a_file_in_place_of_the_state_folder_is_named(home: Path) -> None:
    (home / "state").write_text("not a folder")

    told = subprocess.run([*PROGRAM, "up"], capture_output=True, text=True, check=False)

    assert told.returncode == ExitCode.HOST
    assert f"{home}/state" in told.stderr
