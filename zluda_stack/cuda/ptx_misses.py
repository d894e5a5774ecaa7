"""What in a PTX module ZLUDA's parser is known not to take, and which kernels use it.

A first look at the module's words says in a fraction of the time of a parse that there is nothing;
where it finds something, the places are looked at.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from enum import Enum

from msgspec import Struct

from zluda_stack.catalog.coverage import Coverage
from zluda_stack.catalog.cuda import ZludaCode

# All other instructions have a modifier, and so a dot (PTX ISA, "Instruction Set").
_UNMODIFIED = rb"brkpt|pmevent"
_NAME = r"[A-Za-z_$%][\w$]*"
_HEAD = re.compile(rf"\.(?:entry|func)\s+(?:\([^)]*\)\s*)?({_NAME})".encode())
_COMMENT = re.compile(rb'//[^\n]*|/\*.*?(?:\*/|\Z)|("(?:[^"\\\n]|\\.)*"?)', re.DOTALL)
# What operands and directives begin with, and instructions do not.
_OPERAND = (
    b"%",
    b"[%",
    b"{%",
    b".",
    b"-",
    b"0",
    b"1",
    b"2",
    b"3",
    b"4",
    b"5",
    b"6",
    b"7",
    b"8",
    b"9",
)
_NAME_GOES_ON = re.compile(rb"[\w$]")
_INSTRUCTION_GOES_ON = re.compile(rb"[\w$]|[.:]+\w")
# What may stand before an instruction: the end of another, a label, a guard, a line number.
_STATEMENT_ENDS = re.compile(
    rb"(?:\A|[;{}]|[\w$]\s*:|@\s*!?\s*[\w$%]+|\.(?:loc|file)\s[^;{}]*)\s*\Z"
)
_LONGEST_LOOK_BACK = 256
_NUMBER = re.compile(r"\d+(_64)?$")


class MissKind(str, Enum):
    """What is not known; a register of the last kind costs the module, all else the kernel."""

    OPCODE = "opcode"
    FORM = "form"
    REGISTER = "register"
    MODULE_REGISTER = "register that refuses the module"


class Miss(Struct, frozen=True, order=True):
    """One thing that ZLUDA does not take, with the mangled names of the functions that use it."""

    what: str
    kind: MissKind
    functions: tuple[str, ...]


class Known(Struct, frozen=True):
    """What ZLUDA takes, made ready for looking at many modules."""

    opcodes: frozenset[str]
    forms: dict[str, frozenset[str]]
    left_out: frozenset[str]
    refused: frozenset[str]
    registers: tuple[bytes, ...]
    candidate: re.Pattern[bytes]

    @classmethod
    def of(cls, coverage: Coverage, code: ZludaCode) -> Known:
        """The same from the catalogue."""
        opcodes = "|".join(sorted(coverage.ptx_opcodes_parsed - code.forms.keys())).encode()
        registers = code.special_registers
        names = registers.leaves_out_kernel | registers.refuses_module
        special = "|".join(sorted(names, key=len, reverse=True)).encode()
        known_forms = (form for forms in code.forms.values() for form in forms)
        forms = "|".join(map(re.escape, known_forms)).encode()
        pattern = (
            rb"(?:(?:^|(?<=[;{}])|(?<=\w:)(?!:))(?!(?:" + opcodes + rb"|" + forms + rb")(?![\w$]))"
            rb"(?:[a-z]\w*\.[a-z][\w.:]*|(?:" + _UNMODIFIED + rb")\b)"
            rb"|%(?:" + special + rb")\d*(?:_64)?(?![\w$]))"
        )
        return cls(
            opcodes=coverage.ptx_opcodes_parsed,
            forms=code.forms,
            left_out=registers.leaves_out_kernel,
            refused=registers.refuses_module,
            registers=tuple(f"%{name}".encode() for name in sorted(names)),
            candidate=re.compile(pattern, re.MULTILINE),
        )

    def meaning(self, word: str) -> tuple[str, MissKind]:
        """What a candidate is told as: an opcode, a whole instruction, or a register."""
        if word.startswith("%"):
            name = word[1:]
            refused = name in self.refused
            plain = name if refused or name in self.left_out else _NUMBER.sub("", name)
            refused = refused or plain in self.refused
            return f"%{plain}", MissKind.MODULE_REGISTER if refused else MissKind.REGISTER
        opcode = word.partition(".")[0]
        return (word, MissKind.FORM) if opcode in self.forms else (opcode, MissKind.OPCODE)


def misses(known: Known, text: bytes) -> tuple[Miss, ...]:
    """What in the PTX module `text` ZLUDA's parser does not take.

    Nothing found does not mean that it takes everything: only the compiler knows all modifiers.
    """
    words = _suspects(known, set(text.split()))
    if not words:
        return ()
    visible = _COMMENT.sub(_blank, text)
    places = _Places(visible)
    found: defaultdict[tuple[str, MissKind], dict[str, None]] = defaultdict(dict)
    for word in sorted(words):
        what, kind = known.meaning(word.decode())
        starts = kind in {MissKind.OPCODE, MissKind.FORM}
        found[what, kind].update(dict.fromkeys(places.users(word, starts_statement=starts)))
    return tuple(sorted(Miss(*key, tuple(users)) for key, users in found.items() if users))


def _suspects(known: Known, tokens: set[bytes]) -> set[bytes]:
    """The words in `tokens` that may be something that ZLUDA does not take.

    Nearly all tokens are operands or known instructions, which the first two tests sort out fast.
    """
    joined = b"\n".join(
        token
        for token in tokens
        if not token.startswith(_OPERAND)
        or token.startswith(known.registers)
        or token.find(b";", 0, -1) >= 0
    )
    return set(known.candidate.findall(joined))


class _Places:
    """Where the functions of a module begin, and which of them use a word."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        heads = [
            (found.start(), found[1].decode(errors="replace")) for found in _HEAD.finditer(text)
        ]
        self._starts = [start for start, _ in heads]
        self._names = [name for _, name in heads]

    def users(self, word: bytes, *, starts_statement: bool) -> Iterator[str]:
        """The functions in which `word` stands, each once."""
        position = self._text.find(word)
        while position >= 0:
            number = bisect_right(self._starts, position)
            end = position + len(word)
            if number and self._is_whole(position, end, starts_statement=starts_statement):
                yield self._names[number - 1]
                if number == len(self._starts):
                    return
                end = self._starts[number]
            position = self._text.find(word, end)

    def _is_whole(self, start: int, end: int, *, starts_statement: bool) -> bool:
        if not starts_statement:
            return _NAME_GOES_ON.match(self._text, end) is None
        before = self._text[max(0, start - _LONGEST_LOOK_BACK) : start]
        if _INSTRUCTION_GOES_ON.match(self._text, end):
            return False
        return _STATEMENT_ENDS.search(before) is not None


def _blank(found: re.Match[bytes]) -> bytes:
    return b'""' if found[1] is not None else b" "
