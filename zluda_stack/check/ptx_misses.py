"""What in a PTX module ZLUDA's parser is known not to take, and which kernels use it.

A first look at the module's words says in a fraction of the time of a parse that there is nothing;
where it finds something, the places are looked at.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import Enum

from msgspec import Struct

from zluda_stack.catalog.coverage import Coverage
from zluda_stack.catalog.cuda import ZludaCode

# All other instructions have a modifier, and so a dot (PTX ISA, "Instruction Set").
_UNMODIFIED = frozenset({b"brkpt", b"pmevent"})
_NAME = r"[A-Za-z_$%][\w$]*"
# Two patterns that begin with plain letters are found faster than one that does not.
_HEADS = tuple(
    re.compile(rf"\.{kind}\s+(?:\([^)]*\)\s*)?({_NAME})".encode()) for kind in ("entry", "func")
)
_BLOCK_COMMENT = re.compile(rb"/\*.*?(?:\*/|\Z)", re.DOTALL)
_STRING = re.compile(rb'"(?:[^"\\\n]|\\.)*"')
_LINE_COMMENT = re.compile(rb"//[^\n]*")
_NAME_GOES_ON = re.compile(rb"[\w$]")
_INSTRUCTION_GOES_ON = re.compile(rb"[\w$]|[.:]+\w")
# What may stand before an instruction: the end of another, a label, a guard, a line number.
_STATEMENT_ENDS = re.compile(
    rb"(?:\A|[;{}]|[\w$]\s*:|@\s*!?\s*[\w$%]+|\.(?:loc|file)\s[^;{}]*)\s*\Z"
)
_LONGEST_LOOK_BACK = 1024
_NUMBER = re.compile(rb"\d+(_64)?$")
# Each begins with a plain character, which makes it many times faster than one for all.
_STARTS = tuple(
    re.compile(before + rb"[ \t\r]*(?:@!?[%\w]+[ \t]+)?([a-z][\w.:]*)")
    for before in (rb"\n", rb";", rb"\{", rb"\}", rb":(?!:)(?<!::)")
)
_BLOCK = 4 << 20


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

    opcodes: frozenset[bytes]
    forms: dict[bytes, frozenset[bytes]]
    unknown_forms: frozenset[bytes]
    left_out: frozenset[bytes]
    refused: frozenset[bytes]
    registers: re.Pattern[bytes]

    @classmethod
    def of(cls, coverage: Coverage, code: ZludaCode) -> Known:
        """The same from the catalogue."""
        registers = code.special_registers
        left_out, refused = _raw(registers.leaves_out_kernel), _raw(registers.refuses_module)
        return cls(
            opcodes=_raw(coverage.ptx_opcodes_parsed),
            forms={opcode.encode(): _raw(forms) for opcode, forms in code.forms.items()},
            unknown_forms=_raw(code.unknown_forms),
            left_out=left_out,
            refused=refused,
            registers=_registers(left_out | refused),
        )

    def miss(self, word: bytes) -> tuple[str, MissKind] | None:
        """What is not known of an instruction or a register; None when it is known."""
        if word.startswith(b"%"):
            return self._register(word[1:])
        opcode, dot, _ = word.partition(b".")
        if opcode in self.forms or word in self.unknown_forms:
            known = word in self.forms.get(opcode, ())
            return None if known else (word.decode(), MissKind.FORM)
        if opcode in self.opcodes or not (dot or opcode in _UNMODIFIED):
            return None
        return opcode.decode(), MissKind.OPCODE

    def _register(self, name: bytes) -> tuple[str, MissKind] | None:
        for one in (name, _NUMBER.sub(b"", name)):
            if one in self.refused:
                return f"%{one.decode()}", MissKind.MODULE_REGISTER
            if one in self.left_out:
                return f"%{one.decode()}", MissKind.REGISTER
        return None


def misses(known: Known, text: bytes) -> tuple[Miss, ...]:
    """What in the PTX module `text` ZLUDA's parser does not take.

    Nothing found does not mean that it takes everything: only the compiler knows all modifiers.
    """
    visible = _BLOCK_COMMENT.sub(b" ", text) if b"/*" in text else text
    suspects = _suspects(known, visible)
    if not suspects:
        return ()
    places = _Places(visible)
    found: defaultdict[tuple[str, MissKind], dict[str, None]] = defaultdict(dict)
    for word, (what, kind) in sorted(suspects.items()):
        starts = kind in {MissKind.OPCODE, MissKind.FORM}
        found[what, kind].update(dict.fromkeys(places.users(word, starts_statement=starts)))
    return tuple(sorted(Miss(*key, tuple(users)) for key, users in found.items() if users))


def _suspects(known: Known, text: bytes) -> dict[bytes, tuple[str, MissKind]]:
    """The words that may be something that ZLUDA does not take, with what that is."""
    words: set[bytes] = set()
    for block in _blocks(text):
        for pattern in (*_STARTS, known.registers):
            words.update(pattern.findall(block))
    missed = ((word, known.miss(word)) for word in words)
    return {word: miss for word, miss in missed if miss is not None}


def _blocks(text: bytes) -> Iterator[bytes]:
    """The lines of `text`, some at a time: the words of all of them would take much memory."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + _BLOCK)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end


def _registers(names: frozenset[bytes]) -> re.Pattern[bytes]:
    """A pattern for the registers `names`; its first look sorts out %r1, %rd2, %f3 and the like."""
    first = b"".join(sorted({name[:1] for name in names}))
    second = b"".join(sorted({name[1:2] for name in names}))
    look = rb"%(?=[" + first + rb"][" + second + rb"])"
    return re.compile(look + rb"(?:" + b"|".join(sorted(names)) + rb")\w*")


def _raw(names: Iterable[str]) -> frozenset[bytes]:
    return frozenset(name.encode() for name in names)


class _Places:
    """Where the functions of a module begin, and which of them use a word."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        heads = sorted(
            (found.start(), found[1].decode(errors="replace"))
            for pattern in _HEADS
            for found in pattern.finditer(text)
        )
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
        """Whether that is the whole word, and neither in a comment nor in a string."""
        goes_on = _INSTRUCTION_GOES_ON if starts_statement else _NAME_GOES_ON
        if goes_on.match(self._text, end):
            return False
        line = self._text[self._text.rfind(b"\n", 0, start) + 1 : start]
        bare = _STRING.sub(b"", line)
        if b"//" in bare or b'"' in bare:
            return False
        return not starts_statement or self._follows_statement(start, bare)

    def _follows_statement(self, start: int, line: bytes) -> bool:
        """Whether an instruction may begin here, behind the beginning of its `line`."""
        if line.strip():
            return _STATEMENT_ENDS.search(line) is not None
        window = self._text[max(0, start - _LONGEST_LOOK_BACK) : start]
        _, _, whole_lines = window.partition(b"\n")
        return _STATEMENT_ENDS.search(_LINE_COMMENT.sub(b"", whole_lines)) is not None
