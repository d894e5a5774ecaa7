"""Bounded reads of what others wrote: they never wait, never take much, and never trust a number.

A file of sysfs is at most a page; what is larger, of another kind (a pipe, a folder) or cannot be
opened says nothing. Where paths are joined to a `root`, that is / or the tree of a test.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

SMALL = 1 << 14
LARGE = 1 << 20
_MOST_ENTRIES = 4096
_LARGEST_SIZE = 1 << 50
_DECIMAL = re.compile(r"[0-9]{1,20}")
_HEXADECIMAL = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,8})")


def read(path: Path, most: int = SMALL) -> bytes:
    """The first `most` bytes of a regular file. Raises OSError for anything else."""
    # A pipe in the place of a file would otherwise keep open() waiting for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as handle:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return handle.read(most)


def text(path: Path, most: int = SMALL) -> str:
    """The file's text; empty when it cannot be read, which says the same here."""
    try:
        return read(path, most).decode(errors="replace")
    except OSError:
        return ""


def listing(folder: Path) -> list[str]:
    """What is in `folder`, by name; empty when it cannot be listed, cut off where it is absurd."""
    found: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if len(found) == _MOST_ENTRIES:
                    break
                found.append(entry.name)
    except OSError:
        return []
    return sorted(found)


def kind(path: Path) -> int:
    """The kind of what is at `path`, one of the S_IF constants of `stat`; 0 for nothing."""
    try:
        return stat.S_IFMT(path.stat().st_mode)
    except (OSError, ValueError):  # a path from elsewhere may hold what no path can
        return 0


def link_name(path: Path) -> str | None:
    """The last part of where the symbolic link at `path` leads; None when it is none."""
    try:
        return path.readlink().name or None
    except OSError:
        return None


def decimal(word: str) -> int | None:
    """A whole number as the kernel prints it, of at most 20 digits; None for any other word."""
    word = word.strip()
    return int(word) if _DECIMAL.fullmatch(word) else None


def hexadecimal(word: str) -> int | None:
    """A number of at most 32 bits such as 0x1002; None for any other word."""
    match = _HEXADECIMAL.fullmatch(word.strip())
    return int(match[1], 16) if match else None


def size(word: str) -> int | None:
    """A number of bytes; None beyond a pebibyte, which is damage and no memory."""
    value = decimal(word)
    return value if value is not None and value <= _LARGEST_SIZE else None


def free_bytes(path: Path) -> int | None:
    """What an ordinary user may still write where `path` is or will be, in bytes."""
    for folder in (path, *path.parents):
        try:
            disk = os.statvfs(folder)
        except (OSError, ValueError):
            continue
        return disk.f_bavail * disk.f_frsize
    return None
