"""The nearest right word for a wrong one."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The word of `known` that `word` was probably meant to be, or None when none is near.

    Case and the difference between `-` and `_` do not count.
    """
    from difflib import get_close_matches

    plain = {_plain(candidate): candidate for candidate in known}
    close = get_close_matches(_plain(word), plain, n=1, cutoff=0.6)
    return plain[close[0]] if close else None


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")
