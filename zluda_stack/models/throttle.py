"""A limit on how fast bytes are taken, shared by all that take them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Throttle:
    """Lets `bytes_per_second` through; None is no limit. Threads may share it."""

    def __init__(
        self,
        bytes_per_second: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._wait = wait
        self._lock = threading.Lock()
        self._free_at = clock()

    def spend(self, count: int) -> None:
        """Return when `count` bytes that just arrived are paid for."""
        if self._rate is None:
            return
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now) + count / self._rate
            pause = self._free_at - now
        self._wait(pause)
