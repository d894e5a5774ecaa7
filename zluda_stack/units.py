"""Amounts as people read them."""

from __future__ import annotations


def megabytes(count: int) -> str:
    """`count` bytes in decimal megabytes."""
    return f"{count / 1_000_000:.1f} MB"
