"""How long work tells a person what it is doing."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from zluda_stack.units import megabytes

_WINDOW_SECONDS = 10.0
_SAMPLE_SECONDS = 0.25


class Progress(Protocol):
    """What an engine or a store reports while it works; the CLI decides how that looks."""

    def step(self, text: str) -> None:
        """A new step begins: one line, no full stop needed."""

    def bytes(self, done: int, total: int | None) -> None:
        """`done` of `total` bytes of the current step are there; total None when unknown."""


class Silent:
    """Progress for callers who want none, such as --json and tests."""

    def step(self, text: str) -> None:
        """Say nothing."""

    def bytes(self, done: int, total: int | None) -> None:
        """Say nothing."""


class Rate:
    """How fast the bytes of a step come, over its last seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque()

    def restart(self) -> None:
        """A new step begins."""
        self._samples.clear()

    def see(self, done: int) -> None:
        """`done` bytes are there now; fewer than before begin a new count."""
        now = self._clock()
        if self._samples and done < self._samples[-1][1]:
            self._samples.clear()
        if not self._samples or now - self._samples[-1][0] >= _SAMPLE_SECONDS:
            self._samples.append((now, done))
        while len(self._samples) > 2 and now - self._samples[0][0] > _WINDOW_SECONDS:
            self._samples.popleft()

    def told(self, total: int | None) -> str:
        """The rate, and the time that is left of `total` bytes; nothing before a second is over."""
        if len(self._samples) < 2:
            return ""
        (began, before), (now, done) = self._samples[0], self._samples[-1]
        if now - began < 1 or done <= before:
            return ""
        rate = (done - before) / (now - began)
        left = "" if total is None else f", {_time((total - done) / rate)} left"
        return f"{megabytes(int(rate))}/s{left}"


class Part:
    """The progress of one part of a whole: `before` bytes of `total` were there already."""

    def __init__(self, progress: Progress, before: int, total: int | None) -> None:
        self._progress = progress
        self._before = before
        self._total = total

    def step(self, text: str) -> None:
        """Pass it on."""
        self._progress.step(text)

    def bytes(self, done: int, total: int | None) -> None:
        """Report how far the whole is."""
        whole = total if self._before == 0 and self._total is None else self._total
        self._progress.bytes(self._before + done, whole)


class Together:
    """One progress for several threads: their bytes are added up under one step."""

    def __init__(self, progress: Progress, title: str) -> None:
        self._progress = progress
        self._title = title
        self._lock = threading.Lock()
        self._lanes: list[_Lane] = []
        progress.step(title)

    def lane(self, name: str, total: int | None) -> Progress:
        """The progress of one thread, whose whole work is `total` bytes; None when unknown."""
        made = _Lane(self, name, total)
        with self._lock:
            self._lanes.append(made)
        return made

    def news(self, text: str) -> None:
        """Something that a thread wants to say beside its bytes."""
        with self._lock:
            self._progress.step(f"{self._title} ... now: {text}")

    def tell(self) -> None:
        """Report the sum of all threads' bytes."""
        with self._lock:
            totals = [lane.total for lane in self._lanes]
            total = None if None in totals else sum(total or 0 for total in totals)
            self._progress.bytes(sum(lane.done for lane in self._lanes), total)


class _Lane:
    """What one of several threads reports; a step that is no news is not shown."""

    def __init__(self, together: Together, name: str, total: int | None) -> None:
        self._together = together
        self._name = name
        self.done = 0
        self.total = total

    def step(self, text: str) -> None:
        """Pass on what is news about a step that goes on."""
        news = text.partition(" ... ")[2].partition(": ")[2]
        if news:
            self._together.news(f"{self._name}: {news}")

    def bytes(self, done: int, total: int | None) -> None:
        """Add the bytes to those of the others."""
        self.done, self.total = done, total if self.total is None else self.total
        self._together.tell()


def _time(seconds: float) -> str:
    """A time as people read it: 45 s, 12 min, 3 h 20 min."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
