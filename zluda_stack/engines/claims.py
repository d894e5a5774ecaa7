"""Ports that a stack is about to listen on, told to other commands before it does.

Between the choice of a free port and the moment it is bound, a model may be fetched or an image
built. A claim is a lock file that `up` holds meanwhile, so that it ends with its process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from zluda_stack import locks, paths
from zluda_stack.errors import HostProblem
from zluda_stack.host.facts import RunningStack


def _folder() -> Path:
    return paths.stacks().parent / "claims"


@contextmanager
def choosing() -> Iterator[None]:
    """Choose a port, from reading the host's facts to `claim`, while no one else does."""
    with locks.locked(_folder().with_name("choosing.lock"), lambda: None):
        yield


@contextmanager
def claim(name: str, port: int) -> Iterator[None]:
    """Keep `port` for the stack `name`.

    Another command that works on the same stack may hold its claim already; that one stands.
    """
    path = _folder() / name
    with locks.locked_if_free(path) as ours:
        if ours:
            _write(path, port)
        yield


def _write(path: Path, port: int) -> None:
    try:
        path.write_text(f"{port}\n")
    except OSError as error:
        raise HostProblem(
            f"cannot write {path}: {error.strerror}", "Free some space; then run it again."
        ) from error


def claimed() -> tuple[RunningStack, ...]:
    """The claims that are held now, by name."""
    found = []
    for path in sorted(_folder().glob("*")):
        with suppress(HostProblem, OSError, ValueError):
            if locks.held(path):
                found.append(RunningStack(name=path.name, port=int(path.read_text())))
    return tuple(found)
