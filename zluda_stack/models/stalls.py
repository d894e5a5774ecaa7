"""What is said while a server sends nothing."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from zluda_stack.progress import Progress


class StallWatch:
    """While it is open, says that `step` waits for a byte, every `seconds` without one.

    The read that waits says nothing itself: it ends after a minute, and a person who sees
    nothing for so long takes the program for dead.
    """

    def __init__(self, step: str, progress: Progress, seconds: float) -> None:
        self._step = step
        self._progress = progress
        self._seconds = seconds
        self._told = False
        self._since: float | None = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> StallWatch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def waits(self) -> None:
        """The next byte is waited for from now on."""
        self._since = time.monotonic()

    def heard(self) -> None:
        """Bytes came: the step goes on as it was, and nothing is waited for."""
        self._since = None
        if self._told:
            self._told = False
            self._progress.step(self._step)

    def _watch(self) -> None:
        pause = self._seconds
        while not self._ended.wait(pause):
            since = self._since
            silent = 0 if since is None else time.monotonic() - since
            if silent < self._seconds:
                pause = self._seconds - silent
                continue
            self._told, pause = True, self._seconds
            self._progress.step(f"{self._step} ... now: no byte came for {silent:.0f} s")
