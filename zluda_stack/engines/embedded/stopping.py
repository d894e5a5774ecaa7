"""How a stack is stopped, whatever state it was left in."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from zluda_stack.engines.embedded.state import (
    ENDPOINT,
    INFERENCE,
    SUPERVISOR,
    StackFolder,
    read_record,
)
from zluda_stack.engines.embedded.supervisor import STOP_SECONDS
from zluda_stack.errors import EngineFailure
from zluda_stack.progress import Progress

_POLL_SECONDS = 0.1
_RECORD_SECONDS = 2.0
_KILL_SECONDS = 30


def stop(folder: StackFolder, progress: Progress, *, impatient: bool = False) -> bool:
    """Stop whatever of the stack lives and clear its record; True when there was something.

    `impatient` gives requests in flight no time to end.
    """
    there = folder.lives(SUPERVISOR) or folder.record.exists()
    if folder.lives(SUPERVISOR):
        progress.step("stopping the stack; requests in flight may end first")
        _signal(folder, SUPERVISOR, signal.SIGKILL if impatient else signal.SIGTERM)
    if not _ended(folder, SUPERVISOR, STOP_SECONDS):
        _signal(folder, SUPERVISOR, signal.SIGKILL)
    for service in (SUPERVISOR, ENDPOINT, INFERENCE):  # the last two end with the first
        if not _ended(folder, service, _KILL_SECONDS):
            _signal(folder, service, signal.SIGKILL)
            if not _ended(folder, service, _KILL_SECONDS):
                raise EngineFailure(
                    f"the {service} process of {folder.root.name} does not end, even when killed",
                    "It hangs in the kernel; restart the machine.",
                )
    for path in (folder.socket, folder.report, folder.record):
        path.unlink(missing_ok=True)
    return there


def _signal(folder: StackFolder, service: str, number: signal.Signals) -> None:
    """Send a signal to the living process of `service`.

    Its lock is held, so the record is of this run (`stop` clears every other) and the pid
    in it has not passed on to a stranger.
    """
    deadline = time.monotonic() + _RECORD_SECONDS
    while folder.lives(service) and time.monotonic() < deadline:
        record = read_record(folder)
        pid = record.pid(service) if record else None
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            return
        time.sleep(_POLL_SECONDS)  # a supervisor writes its record right after taking the lock


def _ended(folder: StackFolder, service: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while folder.lives(service):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
