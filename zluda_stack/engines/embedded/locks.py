"""Lock files: whether a process lives is asked of the kernel, never guessed from a pid."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_SECONDS = 0.05


def held(path: Path) -> bool:
    """True when some process holds the lock file `path`. Needs no write permission.

    The shared lock that this takes for a moment does not disturb others who ask; who wants the
    lock itself must try for longer than that moment (`take` does).
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def take(path: Path, *, patience: float = 1.0) -> int | None:
    """A descriptor that holds the lock `path` until it and its heirs are closed.

    None when another process keeps it for `patience` seconds.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(_POLL_SECONDS)
        else:
            return descriptor


@contextmanager
def alone(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock `path`; `on_wait` is called once when another process must end first."""
    descriptor = take(path, patience=0.2)
    if descriptor is None:
        on_wait()
        while descriptor is None:
            descriptor = take(path, patience=60.0)
    try:
        yield
    finally:
        os.close(descriptor)
