"""Lock files: whether a process lives is asked of the kernel, never guessed from a pid."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from zluda_stack.errors import HostProblem

_POLL_SECONDS = 0.05
_MOMENT_SECONDS = 0.2


def held(path: Path) -> bool:
    """True when some process holds the lock file `path`. Needs no write permission.

    The shared lock that this takes for a moment does not disturb others who ask; who wants the
    lock itself must try for longer than that moment (`take` does). Raises HostProblem.
    """
    with _told(path):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not _flock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)


def take(path: Path, *, patience: float = 1.0) -> int | None:
    """A descriptor that holds the lock `path` until it and its heirs are closed.

    None when another process keeps it for `patience` seconds. Raises HostProblem.
    """
    deadline = time.monotonic() + patience
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while not _flock(descriptor, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(_POLL_SECONDS)
    return descriptor


@contextmanager
def locked(path: Path, while_waiting: Callable[[], None]) -> Iterator[int]:
    """Hold the lock `path`; yields its descriptor, for a child that is to hold it too.

    While another process keeps it, `while_waiting` is called several times a second; it may
    raise. It is not called for one who held the lock for a moment only, as `held` does.
    """
    descriptor = take(path, patience=_MOMENT_SECONDS)
    while descriptor is None:
        while_waiting()
        descriptor = take(path, patience=_MOMENT_SECONDS)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def locked_if_free(path: Path) -> Iterator[bool]:
    """Hold the lock `path` if nobody does; yields whether it is held now."""
    descriptor = take(path, patience=0)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _flock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HostProblem(
            f"cannot write and lock {path}: {error.strerror}",
            "Check the folder's owner; XDG_STATE_HOME and XDG_DATA_HOME can name a local disk.",
        ) from error
