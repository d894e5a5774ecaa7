"""How long work tells a person what it is doing."""

from __future__ import annotations

from typing import Protocol


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
