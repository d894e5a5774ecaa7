"""What a PTX module says of itself: its version, target, entry functions and opcodes.

The grammar is that of NVIDIA's "Parallel Thread Execution ISA" (the chapters Syntax and
Directives): statements end with a semicolon, except for the few directives listed below and for
function and section headers, which a block follows. A brace elsewhere belongs to an operand.
"""

from __future__ import annotations

import re
from collections import Counter

from msgspec import Struct

from zluda_stack.errors import UsageError

_INVISIBLE = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:[^"\\\n]|\\.)*"?', re.DOTALL)
_IDENTIFIER = r"[A-Za-z_$%][\w$]*"
_STATEMENT = re.compile(
    rf"""\s*(?:
      [{{}};]
    | \.version \s+ (?P<version>\d+\.\d+)
    | \.target \s+ (?P<target>{_IDENTIFIER}(?:\s*,\s*{_IDENTIFIER})*)
    | \.address_size \s+ (?P<address_size>\d+)
    | \.file \s+ \d+ \s+ "" (?:\s*,\s*\d+\s*,\s*\d+)?
    | \.loc \s+ \d+ \s+ \d+ \s+ \d+
        (?:\s*,\s*function_name\s+[^,;]+,\s*inlined_at\s+\d+\s+\d+\s+\d+)?
    | {_IDENTIFIER} \s* : (?!:)
    | @ \s* !? \s* {_IDENTIFIER}
    | (?P<directive>\.[^;{{}}=]*) (?:=[^;]*)? ;?
    | (?P<opcode>[A-Za-z]\w*) [^;]* ;?
    | (?P<unknown>\S)
    )""",
    re.VERBOSE,
)
_ENTRY = re.compile(rf"\.entry\s+({_IDENTIFIER})")


class PtxModule(Struct, frozen=True, kw_only=True):
    """One PTX module: `entries` are its kernels' mangled names, `opcodes` the uses of each.

    An opcode is the instruction's name before its first dot: `ld` for `ld.global.f32`.
    """

    version: str
    target: str
    address_size: int
    entries: tuple[str, ...]
    opcodes: dict[str, int]


def is_ptx(text: bytes) -> bool:
    """Whether `text` looks like a PTX module: a .version comes before any other statement."""
    start = _INVISIBLE.sub(" ", text[: 1 << 16].decode(errors="replace"))
    return start.lstrip().startswith(".version")


def parse(text: bytes, *, name: str) -> PtxModule:
    """What the PTX module `text` says; `name` is what an error calls it.

    Raises UsageError when it is not PTX: no .version, no .target, or a statement that is none.
    """
    visible = _INVISIBLE.sub(_blank, text.decode(errors="replace"))
    header: dict[str, str] = {}
    entries: list[str] = []
    opcodes: Counter[str] = Counter()
    for found in _STATEMENT.finditer(visible):
        kind = found.lastgroup
        if kind == "opcode":
            opcodes[found["opcode"]] += 1
        elif kind == "directive":
            entries.extend(_ENTRY.findall(found["directive"]))
        elif kind == "unknown":
            raise UsageError(
                f"{name} is not PTX: {found['unknown']!r} begins no statement",
                "Name a PTX module as nvcc or `cuobjdump -xptx` writes it.",
            )
        elif kind is not None:
            header.setdefault(kind, found[kind])
    for part in ("version", "target"):
        if part not in header:
            raise UsageError(
                f"{name} is not PTX: it has no .{part}",
                "Name a PTX module as nvcc or `cuobjdump -xptx` writes it.",
            )
    return PtxModule(
        version=header["version"],
        target=re.split(r"\s*,", header["target"])[0],
        address_size=int(header.get("address_size", "32")),
        entries=tuple(entries),
        opcodes=dict(sorted(opcodes.items())),
    )


def _blank(found: re.Match[str]) -> str:
    """An empty string literal for a string, a space for a comment."""
    return '""' if found[0].startswith('"') else " "
