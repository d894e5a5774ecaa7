"""What every engine on this machine does alike: its folder, its lock, its question of health."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

from zluda_stack import locks
from zluda_stack.errors import EngineFailure, HostProblem, Interrupted
from zluda_stack.plan.types import EndpointPlan
from zluda_stack.program import command
from zluda_stack.progress import Progress

PROGRESS_SECONDS = 5
TAIL_LINES = 15
_HEALTH_SECONDS = 2.0


def make_private(folder: Path) -> None:
    """Make the stack's folder, which only its owner may enter: a socket in it asks no key."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise HostProblem(
            f"cannot use {folder}: {error.strerror}", "Check the folder's owner and free space."
        ) from error


def operation_lock(folder: Path) -> Path:
    """Held by the one command that changes the stack in `folder`."""
    return folder / "operation.lock"


def alone(folder: Path, progress: Progress) -> contextlib.AbstractContextManager[int]:
    """Hold the operation lock of `folder`, waiting for another command as long as it takes."""
    steps = iter(["waiting for another command that works on this stack"])

    def while_waiting() -> None:
        for step in steps:  # told once, however long it takes
            progress.step(step)

    return locks.locked(operation_lock(folder), while_waiting)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C: what cleans up after the first one must not be cut short by the next."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def never_started(name: str) -> EngineFailure:
    """The error of who needs the stack `name` before there was one."""
    return EngineFailure(f"no stack {name} was started yet", f"`{command('up', name)}` starts it.")


def stop_interrupted(name: str) -> Interrupted:
    """The error of Ctrl-C while the stack `name` is being stopped."""
    return Interrupted(
        f"interrupted; the stack {name} may still be stopping",
        f"`{command('status', name)}` shows what is left; `{command('down', name)}` goes on.",
    )


def answers(endpoint: EndpointPlan) -> bool:
    """True when `endpoint` says just now that it is healthy."""
    import http.client  # with TLS a tenth of what `status` takes, which often has nobody to ask

    from zluda_stack.tls import LocalConnection

    connection = LocalConnection(endpoint, _HEALTH_SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def spell_exit(exit_status: int) -> str:
    """An exit status as people know it; negative is the number of a signal."""
    if exit_status < 0:
        return f"signal {signal.Signals(-exit_status).name}"
    return f"exit status {exit_status}"
