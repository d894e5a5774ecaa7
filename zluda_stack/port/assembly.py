"""Inline assembly of a C++ source: whose machine it is for, by its first instruction."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from enum import Enum

from msgspec import Struct

from zluda_stack.port.lexer import Source

_STATEMENT = re.compile(
    r"\b(?:asm|__asm__|__asm)\b\s*(?:(?:volatile|__volatile__|inline|__inline__|goto)\s*)*\("
)
# An instruction of PTX begins a line, behind braces, labels, declarations and a predicate.
_PTX = re.compile(
    r"(?:^|[;{}\n:])\s*(?:@!?\s*%?\w+\s+)?((?:[a-z]\w*)(?:\.[a-z0-9_:]+)+|(?:trap|exit|ret|brkpt)(?=\s*;))"
)
_PTX_REGISTER = re.compile(r"%%?(?:laneid|warpid|smid|globaltimer|clock|lanemask|tid|ctaid|ntid)")
_AMD = re.compile(r"(?:^|[;\n])\s*(?:s|v|ds|global|flat|buffer|image|scratch|tbuffer)_[a-z]")


class Machine(str, Enum):
    """What inline assembly is written for."""

    PTX = "PTX"
    AMD = "AMD"
    OTHER = "other"
    UNREADABLE = "unreadable"


class Assembly(Struct, frozen=True):
    """One statement: its place in the text, its machine, and its first instruction if PTX."""

    place: int
    machine: Machine
    instruction: str = ""


def assembly(source: Source) -> Iterator[Assembly]:
    """All inline assembly with instructions in it; an empty one only holds the compiler back."""
    starts = [literal.start for literal in source.literals]
    end = 0
    for found in _STATEMENT.finditer(source.code):
        if found.start() < end:
            continue
        begin, end = found.end(), _template_end(source.code, found.end())
        first, behind = bisect_left(starts, begin), bisect_left(starts, end)
        literals = source.literals[first:behind]
        text = "".join(literal.value for literal in literals)
        words = source.code[begin:end].replace('"', " ").strip()
        if text.strip() or words:
            yield _judged(found.start(), text, readable=not words or bool(text.strip()))


def _template_end(code: str, begin: int) -> int:
    """Where the text of the statement that is open at `begin` ends: at its first colon or at )."""
    depth = 0
    for place in range(begin, len(code)):
        char = code[place]
        if char in "([{":
            depth += 1
        elif char in ")]}":
            if depth == 0:
                return place
            depth -= 1
        elif char == ":" and depth == 0:
            return place
    return len(code)


def _judged(place: int, text: str, *, readable: bool) -> Assembly:
    if not readable:
        return Assembly(place, Machine.UNREADABLE)
    if _AMD.search(text):
        return Assembly(place, Machine.AMD)
    found = _PTX.search(text)
    if found is not None:
        return Assembly(place, Machine.PTX, found[1])
    register = _PTX_REGISTER.search(text)
    if register is not None:
        return Assembly(place, Machine.PTX, register[0].replace("%%", "%"))
    return Assembly(place, Machine.OTHER)
