"""Progress for tests that look at it."""

from __future__ import annotations


class Recorder:
    """Progress that remembers what it was told."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.counts: list[tuple[int, int | None]] = []

    def step(self, text: str) -> None:
        self.steps.append(text)

    def bytes(self, done: int, total: int | None) -> None:
        self.counts.append((done, total))
