"""Amounts as people read them."""

from __future__ import annotations


def megabytes(count: int) -> str:
    """`count` bytes in decimal megabytes."""
    return f"{count / 1_000_000:.1f} MB"


def gibibytes(count: int) -> str:
    """`count` bytes in GiB, as memory is counted."""
    return f"{count / 2**30:.1f} GiB"


def gigabytes(count: int) -> str:
    """`count` bytes in decimal gigabytes, as downloads are counted."""
    return f"{count / 1_000_000_000:.1f} GB"
