"""The files of an installed Python package, asked of its interpreter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator

from zluda_stack.check.sources import Folder, Found
from zluda_stack.errors import HostProblem, UsageError

_SECONDS = 60
# It runs in the other interpreter, of any version since 3.8.
_QUESTION = """
import importlib.metadata as metadata, json, os, sys
try:
    found = metadata.distribution(sys.argv[1])
except metadata.PackageNotFoundError:
    print(json.dumps(None))
else:
    files = [os.path.normpath(str(found.locate_file(file))) for file in found.files or ()]
    print(json.dumps([file for file in files if os.path.isfile(file)]))
"""


class Package:
    """An installed package by its distribution's name."""

    def __init__(self, name: str, files: list[str]) -> None:
        self.name = name
        self.links: dict[str, str] = {}
        self.required: tuple[str, ...] = ()
        self._files = files

    def files(self) -> Iterator[Found]:
        """The programs and libraries that the package installed."""
        walk = Folder("/")
        walk.links = self.links
        for name in sorted(set(self._files)):
            yield from walk.one(name)


def installed(name: str, python: str | None) -> Package | None:
    """The package `name` of the interpreter `python`; None when it is not installed there.

    Without `python` it is that of the active virtual environment, else python3 of PATH. Raises
    UsageError when there is no interpreter, HostProblem when it does not answer.
    """
    interpreter = _interpreter(python)
    try:
        done = subprocess.run(
            [interpreter, "-c", _QUESTION, name],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        files = json.loads(done.stdout) if done.returncode == 0 else ...
    except (OSError, subprocess.TimeoutExpired, json.JSONDecodeError) as error:
        raise _silent(interpreter, str(error)) from error
    if files is ...:
        raise _silent(interpreter, (done.stderr.strip().splitlines() or ["no reason given"])[-1])
    return None if files is None else Package(name, files)


def _interpreter(python: str | None) -> str:
    environment = os.environ.get("VIRTUAL_ENV")
    active = f"{environment}/bin/python" if environment else "python3"
    found = shutil.which(python or active)
    if found is None:
        raise UsageError(f"there is no interpreter {python or active}", "Name one with --python.")
    return found


def _silent(interpreter: str, problem: str) -> HostProblem:
    return HostProblem(
        f"{interpreter} cannot be asked for its packages: {problem}",
        "Name another interpreter with --python.",
    )
