"""A queue in which every key has a line of its own, and the lines take turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Generic, TypeVar

_T = TypeVar("_T")
_Found = TypeVar("_Found")


class FairQueue(Generic[_T]):
    """First come, first served within a key; among keys, each once in turn."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[_T]] = {}  # in the order of their turns

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[_T]:
        """All that wait, in no order."""
        return chain.from_iterable(list(self._lines.values()))

    def waiting(self, key: str) -> int:
        """How many of `key` wait."""
        return len(self._lines.get(key, ()))

    def append(self, key: str, item: _T) -> None:
        """Let `item` wait behind all others of its key."""
        self._lines.setdefault(key, deque()).append(item)

    def prepend(self, key: str, item: _T) -> None:
        """Let `item`, which has waited already, wait before all others of its key."""
        self._lines.setdefault(key, deque()).appendleft(item)

    def remove(self, key: str, item: _T) -> None:
        """Let `item` wait no longer. Raises ValueError when it does not."""
        line = self._lines.get(key, deque())
        line.remove(item)
        if not line:
            self._lines.pop(key)

    def take(self, find: Callable[[_T], _Found | None]) -> tuple[_T, _Found] | None:
        """Remove the first item in turn for which `find` finds something; both, or None."""
        for key, line in self._lines.items():
            for item in line:
                found = find(item)
                if found is not None:
                    self.remove(key, item)
                    if line:  # its next turn comes after those of all others
                        self._lines[key] = self._lines.pop(key)
                    return item, found
        return None
