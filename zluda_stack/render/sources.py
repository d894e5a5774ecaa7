"""The files of the project that a rendered folder holds beside what is rendered."""

from __future__ import annotations

from pathlib import Path

from zluda_stack import paths
from zluda_stack.errors import StackError

_PACKAGE = "zluda_stack"
_LEFT_OUT = {"__pycache__", "_project"}


def read_source(name: str) -> dict[str, str]:
    """The file `name` of the project, or every file of that folder: path -> text.

    Raises StackError when it is not there.
    """
    top = _place(name)
    if top.is_dir():
        files = [path for path in sorted(top.rglob("*")) if path.is_file()]
        names = {path: path.relative_to(top) for path in files}
        return {
            f"{name}/{inner.as_posix()}": path.read_text()
            for path, inner in names.items()
            if not _LEFT_OUT & set(inner.parts)
        }
    try:
        return {name: top.read_text()}
    except OSError as error:
        raise StackError(f"{top}: {error.strerror}", "Install zluda-stack again.") from error


def _place(name: str) -> Path:
    """Where the file is: the package itself need not lie beside the rest of the project."""
    first, _, inner = name.partition("/")
    return Path(paths.__file__).parent / inner if first == _PACKAGE else paths.project() / name
