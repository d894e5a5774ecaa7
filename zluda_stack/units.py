"""Amounts as people read them."""

from __future__ import annotations

import re

_AMOUNT = re.compile(r"([0-9]{1,18}(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_STEPS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def amount(text: str) -> int | None:
    """The number that `text` says, such as 24G or 32k in steps of 1024; None when it says none."""
    match = _AMOUNT.fullmatch(text.strip())
    return int(float(match[1]) * 1024 ** _STEPS[match[2].lower()]) if match else None


def megabytes(count: int) -> str:
    """`count` bytes in decimal megabytes."""
    return f"{count / 1_000_000:.1f} MB"


def gibibytes(count: int) -> str:
    """`count` bytes in GiB, as memory is counted."""
    return f"{count / 2**30:.1f} GiB"


def gigabytes(count: int) -> str:
    """`count` bytes in decimal gigabytes, as downloads are counted."""
    return f"{count / 1_000_000_000:.1f} GB"
