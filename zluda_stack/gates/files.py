"""The files that a gate is to look at."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from zluda_stack.cuda import elf
from zluda_stack.errors import UsageError


def expanded(paths: Iterable[Path]) -> list[Path]:
    """`paths`, with each folder replaced by the ELF files in it, sorted, links followed once.

    Raises UsageError for a folder without any: nothing looked at must not count as passed.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inside = {file.resolve() for file in path.rglob("*") if file.is_file()}
            programs = sorted(file for file in inside if elf.is_elf(file))
            if not programs:
                raise UsageError(
                    f"there is no program and no library in {path}",
                    "Name the folder that the build fills.",
                )
            found.update(dict.fromkeys(programs))
        else:
            found[path] = None
    return list(found)
