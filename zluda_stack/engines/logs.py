"""Log files: one per service and run, the run before it kept as `.1`."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

_POLL_SECONDS = 0.2


def previous(path: Path) -> Path:
    """Where the log of the run before is kept."""
    return path.with_name(path.name + ".1")


def open_fresh(path: Path) -> int:
    """A descriptor for an empty log at `path`, in place of the one that becomes the previous."""
    if path.exists():
        path.replace(previous(path))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def tail(path: Path, lines: int) -> tuple[str, ...]:
    """The last `lines` lines of `path`, oldest first; none when there is no such file."""
    try:
        with path.open(errors="replace") as handle:
            return tuple(line.rstrip("\n") for line in deque(handle, maxlen=lines))
    except FileNotFoundError:
        return ()


def tails(paths: dict[str, Path], lines: int) -> Iterator[tuple[str, str]]:
    """(name, line) of the last `lines` lines of every log, one log after the other."""
    for name, path in paths.items():
        for line in tail(path, lines):
            yield name, line


class Follower:
    """Reads what is appended to a log, through the change of the file at a restart."""

    def __init__(self, path: Path, *, lines: int) -> None:
        self._path = path
        self._handle = path.open("rb") if path.exists() else None
        self._partial = b""
        self._backlog = deque(self._appended(), maxlen=lines)

    def read(self) -> Iterator[str]:
        """The lines that are complete and were not read yet."""
        while self._backlog:
            yield self._backlog.popleft()
        yield from self._appended()
        if self._replaced():
            yield from self._appended()  # what was written between the last read and the change
            if self._partial:
                yield self._text(self._partial)
            if self._handle is not None:
                self._handle.close()
            self._handle, self._partial = self._path.open("rb"), b""
            yield from self._appended()

    def _appended(self) -> Iterator[str]:
        if self._handle is None:
            return
        *whole, self._partial = (self._partial + self._handle.read()).split(b"\n")
        yield from map(self._text, whole)

    def _replaced(self) -> bool:
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        return self._handle is None or not os.path.samestat(there, os.fstat(self._handle.fileno()))

    @staticmethod
    def _text(line: bytes) -> str:
        return line.decode(errors="replace")


def follow(paths: dict[str, Path], lines: int) -> Iterator[tuple[str, str]]:
    """(name, line) of every log: its last `lines` lines, then what is appended, without end."""
    followers = {name: Follower(path, lines=lines) for name, path in paths.items()}
    while True:
        for name, follower in followers.items():
            for line in follower.read():
                yield name, line
        time.sleep(_POLL_SECONDS)
