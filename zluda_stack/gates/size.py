"""Gate `size`: a tree of files stays within its budget."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Sequence
from os import stat_result
from pathlib import Path

from zluda_stack.errors import HostProblem, UsageError
from zluda_stack.gates.verdict import Finding, Verdict, counted
from zluda_stack.units import megabytes

_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(|kB|MB|GB)")
_MOST_SHOWN = 10


def parse(text: str) -> int:
    """The bytes in "800 MB" or "1.5GB"; a bare number is bytes. Raises UsageError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is not a size", "Write it as 800MB or 1.5GB.")
    return round(float(found[1]) * _UNITS[found[2]])


def check(folders: Sequence[Path], *, budget: int) -> Verdict:
    """Whether the files under `folders` take at most `budget` bytes, hard links counted once.

    Other file systems (/proc, /sys, mounts) are left out. Raises HostProblem when a folder is not
    there.
    """
    sizes: dict[tuple[int, int], tuple[int, Path]] = {}
    for folder in folders:
        for path, found in _regular_files(folder):
            sizes.setdefault((found.st_dev, found.st_ino), (found.st_size, path))
    total = sum(size for size, _ in sizes.values())
    said = (
        f"{counted(len(sizes), 'file')} take {megabytes(total)}, the budget is {megabytes(budget)}"
    )
    over = total > budget
    largest = sorted(sizes.values(), reverse=True)[:_MOST_SHOWN] if over else []
    return Verdict(
        gate="size",
        checked=len(sizes),
        summary=said,
        reason=said if over else None,
        hint="Leave out what the image does not need; the largest files are listed above.",
        findings=tuple(Finding(str(path), megabytes(size)) for size, path in largest),
        facts={"bytes": total, "budget": budget},
    )


def _regular_files(folder: Path) -> Iterator[tuple[Path, stat_result]]:
    try:
        device = folder.stat().st_dev
    except OSError as error:
        raise HostProblem(
            f"cannot read {folder}: {error.strerror}", "Name a folder of the image."
        ) from error
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        found = path.lstat()
        if stat.S_ISREG(found.st_mode):
            yield path, found
        elif stat.S_ISDIR(found.st_mode) and found.st_dev == device:
            waiting.extend(path.iterdir())
