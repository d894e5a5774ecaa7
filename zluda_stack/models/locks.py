"""Advisory locks on files: one holder at a time, and a dead process holds none."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep

from zluda_stack.errors import HostProblem

_POLL_SECONDS = 0.2


@contextmanager
def locked(path: Path, while_waiting: Callable[[], None]) -> Iterator[int]:
    """Hold the lock file `path`; yields its descriptor, for a child that is to hold it too.

    While somebody else holds it, `while_waiting` is called several times a second; it may
    raise. It is not called for one who held the lock for a moment only, as `held` does. Raises
    HostProblem when the file cannot be made or its file system has no locks.
    """
    with _opened(path) as descriptor:
        if not _take(descriptor, path):
            sleep(_POLL_SECONDS)
        while not _take(descriptor, path):
            while_waiting()
            sleep(_POLL_SECONDS)
        yield descriptor


@contextmanager
def locked_if_free(path: Path) -> Iterator[bool]:
    """Hold the lock file `path` if nobody does; yields whether it is held now."""
    with _opened(path) as descriptor:
        yield _take(descriptor, path)


def held(path: Path) -> bool:
    """True while somebody holds the lock file `path`. Needs no write permission."""
    try:
        handle = path.open("rb")
    except OSError:
        return False
    with handle:
        return not _take(handle.fileno(), path, fcntl.LOCK_SH)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("ab")
    except OSError as error:
        raise HostProblem(
            f"cannot write {path}: {error.strerror}", "Check the folder's owner and free space."
        ) from error
    with handle:
        yield handle.fileno()


def _take(descriptor: int, path: Path, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            return False
        raise HostProblem(
            f"the file system of {path.parent} cannot lock files: {error.strerror}",
            "Put the store on a local disk: set XDG_DATA_HOME to a folder there.",
        ) from error
    return True
