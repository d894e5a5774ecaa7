"""The files of a folder that a survey or a look at Python packages reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from zluda_stack.errors import UsageError
from zluda_stack.port import python, tree

# In bytes. More is no source that a person wrote.
LARGEST = 4 << 20
_MOST = 100_000
# Folders of tools, which are not the project's own.
_OTHERS = frozenset(
    {
        *(".git", ".hg", ".svn", ".tox", ".nox", ".venv", "venv", "node_modules", "__pycache__"),
        *("site-packages", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".cache"),
    }
)


class Files(Struct, frozen=True):
    """The texts of a folder, as (name below it, text); `unread` counts those not to be had."""

    sources: tuple[tuple[str, str], ...]
    python: tuple[tuple[str, str], ...]
    unread: int


def read_folder(
    path: Path, tell: Callable[[str], None] = lambda _: None, *, most: int = _MOST
) -> Files:
    """The sources and Python files below `path`, or the one file that it is, in name order.

    Symbolic links are not followed, nor folders of tools gone into. A file of more than 4 MiB, one
    that is no text, or one or a folder that this user may not read, counts as unread. `tell` is
    given each name. Raises UsageError when there are more than `most`: counts of a part would pass
    for those of the whole.
    """
    sources: list[tuple[str, str]] = []
    scripts: list[tuple[str, str]] = []
    unread = 0
    closed: list[OSError] = []
    for number, name in enumerate(_names(path, closed.append)):
        if number >= most:
            raise UsageError(f"{path} has more than {most} source files", "Name a folder in it.")
        tell(name)
        text = _text(path / name if path.is_dir() else path)
        if text is None:
            unread += 1
            continue
        if tree.is_wanted(name):
            sources.append((name, text))
        if python.is_wanted(name):
            scripts.append((name, text))
    return Files(tuple(sources), tuple(scripts), unread + len(closed))


def is_source(name: str) -> bool:
    """True for the name of a file that is read as source, and not as a program."""
    return tree.is_wanted(name) or python.is_wanted(name)


def _names(path: Path, miss: Callable[[OSError], None]) -> Iterator[str]:
    """The wanted names below `path`; `miss` is given why a folder cannot be listed."""
    if not path.is_dir():
        yield path.name
        return
    for folder, below, files in os.walk(path, onerror=miss):
        below[:] = sorted(name for name in below if not _is_others(folder, name))
        for name in sorted(files):
            if is_source(name) and not Path(folder, name).is_symlink():
                yield os.path.relpath(os.path.join(folder, name), path)  # noqa: PTH118 -- faster


def _is_others(folder: str, name: str) -> bool:
    try:
        return name in _OTHERS or Path(folder, name, "pyvenv.cfg").exists()
    except OSError:  # this user may not look into it, which the walk will say
        return False


def _text(path: Path) -> str | None:
    try:
        if path.stat().st_size > LARGEST or not path.is_file():
            return None
        text = path.read_text(encoding="utf-8", errors="replace")
        return None if "\0" in text else text
    except OSError:
        return None
