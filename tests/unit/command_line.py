"""Run the real `main` in this process, away from the user's own files."""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from zluda_stack.cli.main import main

CASES = Path(__file__).parents[1] / "cases"
NO_GPU = CASES / "laptop-without-gpu-or-docker.json"


@dataclass(frozen=True)
class Outcome:
    """What a run of the program left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What stdout holds, decoded; fails the test when it is not JSON."""
        return json.loads(self.out)


class FakeTerminal(io.TextIOWrapper):
    """A terminal, as far as `isatty` can tell."""

    def isatty(self) -> bool:
        return True


def run(*arguments: str, terminal: bool = False) -> Outcome:
    """The outcome of `zluda-stack ARGUMENTS`, on a terminal or into pipes."""
    stream = FakeTerminal if terminal else io.TextIOWrapper
    out, err = io.BytesIO(), io.BytesIO()
    with (
        redirect_stdout(stream(out, encoding="utf-8", write_through=True)),
        redirect_stderr(
            stream(err, encoding="utf-8", errors="backslashreplace", write_through=True)
        ),
    ):
        code = main(arguments)
        return Outcome(int(code), out.getvalue().decode(), err.getvalue().decode())


def settle(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make `home` the user's home and return the project folder in it, the current folder now."""
    project = home / "work" / "project"
    (project / ".git").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for kind in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
    for name in list(os.environ):
        if name.startswith("ZLUDA_STACK_") or name in ("NO_COLOR", "VISUAL", "EDITOR"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(project)
    return project


def user_file(home: Path) -> Path:
    """The user's settings file in a home that `settle` made."""
    return home / "config" / "zluda-stack" / "zluda-stack.yml"


def write(path: Path, text: str | bytes) -> Path:
    """Write `text` to `path`, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path
