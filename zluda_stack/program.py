"""How the user can type this very program again."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

NAME = "zluda-stack"


def program() -> str:
    """The words that run this program from the user's current folder: the plain name where the
    shell finds this program under it, else the path that was used.
    """
    used = Path(sys.argv[0])
    if used == Path(__file__).with_name("__main__.py"):
        return f"{_typed(Path(sys.executable))} -m {Path(__file__).parent.name}"
    if used.name != NAME:  # imported by another program, which is not ours to spell
        return NAME
    found = shutil.which(NAME)
    if found is not None and used.exists() and Path(found).samefile(used):
        return NAME
    return _typed(used)


def command(verb: str, stack: str) -> str:
    """The command line of `verb` for the stack of that name."""
    return f"{program()} {verb}" + ("" if stack == "default" else f" --name {stack}")


def as_typed(text: str) -> str:
    """`text` with every `zluda-stack ...` in it as the user can type it."""
    return text.replace(f"`{NAME} ", f"`{program()} ")


def _typed(path: Path) -> str:
    try:
        relative = os.path.relpath(path)
    except OSError:  # the current folder is gone
        return shlex.quote(str(path))
    if os.sep not in relative:
        relative = os.path.join(os.curdir, relative)  # noqa: PTH118 -- Path drops the ./
    return shlex.quote(min(str(path.absolute()), relative, key=len))
