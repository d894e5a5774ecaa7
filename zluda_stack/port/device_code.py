"""Where a CUDA C++ source has code of the card: kernels and the functions they call."""

from __future__ import annotations

import re

_QUALIFIER = re.compile(r"\b__(?:global|device)__\b")
_KERNEL = re.compile(r"\b__global__\b")
_MARKS = re.compile(r"\b__(?:global|device|shared|constant)__\b|<<<|\bthreadIdx\b")
_TO_BODY = re.compile(r"[;{}=]|\b__host__\b")
_NEAR = 100
_BRACE = re.compile(r"[{}]")


def marks(code: str) -> bool:
    """True when anything in `code` is only said in CUDA C++."""
    return _MARKS.search(code) is not None


def kernels(code: str) -> int:
    """How many kernels `code` declares or defines."""
    return len(_KERNEL.findall(code))


def bodies(code: str) -> tuple[tuple[int, int], ...]:
    """The bodies (from, to) of functions that are for the card only, in order.

    `code` has no comments and no literals. One that is not closed ends with the text.
    """
    found: list[tuple[int, int]] = []
    done = 0
    for qualifier in _QUALIFIER.finditer(code):
        if qualifier.start() < done:
            continue
        begin = _body(code, qualifier)
        if begin is not None:
            done = _closed(code, begin)
            found.append((begin, done))
    return tuple(found)


def _body(code: str, qualifier: re.Match[str]) -> int | None:
    """Where the body begins of what is qualified so; None for a variable, or for the host too."""
    before = code[max(0, qualifier.start() - _NEAR) : qualifier.start()]
    if before.rstrip().endswith("__host__"):
        return None
    nearest = _TO_BODY.search(code, qualifier.end())
    return nearest.end() if nearest is not None and nearest[0] == "{" else None


def _closed(code: str, begin: int) -> int:
    depth = 1
    for brace in _BRACE.finditer(code, begin):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.start()
    return len(code)
