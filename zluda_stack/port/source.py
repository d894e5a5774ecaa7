"""What of a CUDA C++ source HIP and hipify cannot convert, line by line."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from zluda_stack.catalog.porting import Porting, Rule, Severity
from zluda_stack.port import device_code
from zluda_stack.port.assembly import Assembly, Machine, assembly
from zluda_stack.port.lexer import Source, read
from zluda_stack.port.preprocessor import Known, first_branches, left_out

# A name that is being defined as a macro is no use of it.
_IDENTIFIER = re.compile(r"(?<!#define )\b[A-Za-z_]\w*")
_WORD = re.compile(r"[A-Za-z_]\w*")
_CALL = re.compile(r"\b([A-Za-z_]\w*)\s*(?:<[^<>;(){}]*>\s*)?\(")
_TYPED = re.compile(r"\.(?:[usbf](?:8|16|32|64)|f16x2|pred|sync|global|shared|approx)\b")
_PTX_TEXT = re.compile(r"\.(?:visible\s+|weak\s+|extern\s+)*entry\s|\.target\s+sm_\d")


class Unportable(Struct, frozen=True):
    """One place: its line from 1, the kind of trouble, what stands there, and what to do."""

    line: int
    kind: str
    name: str
    severity: Severity
    why: str
    instead: str


class Calls(Struct, frozen=True):
    """Calls of CUDA's functions: how many by library, and those that HIP has no counterpart for."""

    by_interface: dict[str, int]
    missing: dict[str, int]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.by_interface.values())

    @property
    def convertible(self) -> int:
        """Those that hipify can convert."""
        return self.total - sum(self.missing.values())


class Scan(Struct, frozen=True):
    """One source as a whole; `device_code` is whether it has kernels or functions of a card."""

    lines: int
    device_code: bool
    kernels: int
    unportable: tuple[Unportable, ...]
    calls: Calls


def unportable(text: str, facts: Porting) -> tuple[Unportable, ...]:
    """What of the C++ source `text` stays behind when hipify has converted it, by line.

    Comments, literals and what a compiler for AMD's cards leaves out do not count.
    """
    return scan(text, facts).unportable


def scan(text: str, facts: Porting) -> Scan:
    """`text` with all that is known of it. Any text can be scanned; nothing is raised."""
    return scan_source(read(text), facts, facts.defined)


def scan_source(source: Source, facts: Porting, known: Known) -> Scan:
    """`source` with all that is known of it; `known` says which macros a HIP build defines."""
    alive = _Alive(left_out(source.code, known))
    bodies = device_code.bodies(first_branches(source.code))
    on_device = bool(bodies) or device_code.marks(source.code)
    found = [
        *_by_rules(source, facts, on_device=on_device),
        *_assembly(source, facts, on_device=on_device),
        *_ptx_text(source),
        *_nested_launches(source, facts, bodies),
    ]
    calls = [call for call in _CALL.finditer(source.code) if call.start() in alive]
    found += _missing_calls(calls, facts)
    return Scan(
        lines=source.lines,
        device_code=on_device,
        kernels=device_code.kernels(source.code),
        unportable=_listed(source, alive, found),
        calls=_counted((call[1] for call in calls), facts),
    )


class _Place(Struct, frozen=True):
    """A finding before its line is known."""

    at: int
    kind: str
    name: str
    severity: Severity
    why: str
    instead: str


class _Alive:
    """The places of a text that are not left out."""

    def __init__(self, dead: Sequence[tuple[int, int]]) -> None:
        self._starts = [start for start, _ in dead]
        self._ends = [end for _, end in dead]

    def __contains__(self, place: object) -> bool:
        if not isinstance(place, int):
            return False
        before = bisect_right(self._starts, place) - 1
        return before < 0 or place >= self._ends[before]


def _of(rule: Rule, at: int, name: str) -> _Place:
    return _Place(at, rule.kind, name, rule.severity, rule.why, rule.instead)


def _by_rules(source: Source, facts: Porting, *, on_device: bool) -> Iterator[_Place]:
    known: dict[str, Rule | None] = {}
    for found in _IDENTIFIER.finditer(source.code):
        name = found[0]
        if name not in known:
            known[name] = facts.rule_for_name(name)
        rule = known[name]
        if rule is not None and (on_device or not rule.device_only):
            yield _of(rule, found.start(), name)
    for at, header in source.includes:
        rule = facts.rule_for_include(header)
        if rule is not None:
            yield _of(rule, at, f"#include <{header}>")
    for pattern, rule in facts.code_patterns:
        if on_device or not rule.device_only:
            for found in pattern.finditer(source.code):
                if not _knows_hip(found[0], facts):
                    yield _of(rule, found.start(), " ".join(found[0].split()))


def _knows_hip(text: str, facts: Porting) -> bool:
    """True for a directive that asks for HIP itself."""
    names = _WORD.findall(text) if text.startswith("#") else []
    return any(facts.defined(name) for name in names)


def _assembly(source: Source, facts: Porting, *, on_device: bool) -> Iterator[_Place]:
    for statement in assembly(source):
        place = _statement(statement, facts, on_device=on_device)
        if place is not None:
            yield place


def _statement(statement: Assembly, facts: Porting, *, on_device: bool) -> _Place | None:
    """What one asm is; None for that of the host and for that of AMD's cards."""
    instead = facts.instead_of(statement.instruction)
    # A header may have nothing else that shows for what it is.
    is_ptx = on_device or (instead and _TYPED.search(statement.instruction))
    if statement.machine is Machine.PTX and is_ptx:
        return _Place(
            statement.place,
            "inline-ptx",
            statement.instruction,
            Severity.NOT_CONVERTIBLE,
            "inline PTX, which hipify leaves as it is",
            instead,
        )
    if statement.machine is Machine.UNREADABLE and on_device:
        return _Place(
            statement.place,
            "inline-assembly",
            "asm",
            Severity.LOOK_AT,
            "its text comes from a macro, and may be PTX",
            "",
        )
    return None


def _ptx_text(source: Source) -> Iterator[_Place]:
    for literal in source.literals:
        found = _PTX_TEXT.search(literal.value)
        if found is not None:
            yield _Place(
                literal.start,
                "ptx-text",
                " ".join(found[0].split()),
                Severity.NOT_CONVERTIBLE,
                "a PTX module as text; HIP loads code objects for AMD's cards only",
                "a kernel in C++, compiled by hipcc or hipRTC",
            )


def _nested_launches(
    source: Source, facts: Porting, bodies: Sequence[tuple[int, int]]
) -> Iterator[_Place]:
    rule = next(rule for rule in facts.rules if rule.kind == "dynamic-parallelism")
    for begin, end in bodies:
        at = source.code.find("<<<", begin, end)
        while at >= 0:
            yield _of(rule, at, "<<<")
            at = source.code.find("<<<", at + 3, end)


def _missing_calls(calls: Iterable[re.Match[str]], facts: Porting) -> Iterator[_Place]:
    for call in calls:
        interface = facts.interface_of(call[1])
        if interface is None or facts.converts(interface, call[1]):
            continue
        if facts.rule_for_name(call[1]) is None:
            yield _Place(
                call.start(),
                "no-counterpart",
                call[1],
                Severity.NOT_CONVERTIBLE,
                f"a function of {interface.title} without a counterpart in {interface.becomes}",
                "",
            )


def _counted(names: Iterable[str], facts: Porting) -> Calls:
    by_interface: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    for name, times in Counter(names).items():
        interface = facts.interface_of(name)
        if interface is not None:
            by_interface[interface.title] += times
            if not facts.converts(interface, name):
                missing[name] += times
    return Calls(dict(by_interface), dict(missing))


def _listed(source: Source, alive: _Alive, found: Iterable[_Place]) -> tuple[Unportable, ...]:
    """By line; of one thing that stands several times in a line, the first."""
    once = {
        Unportable(
            source.line(place.at),
            place.kind,
            place.name,
            place.severity,
            place.why,
            place.instead,
        )
        for place in found
        if place.at in alive
    }
    return tuple(sorted(once, key=lambda each: (each.line, each.kind, each.name)))
