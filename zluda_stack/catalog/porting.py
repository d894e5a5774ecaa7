"""What HIP cannot take over from CUDA C++, as the catalogue has it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import cached_property
from typing import TypeVar

from msgspec import Struct

from zluda_stack.catalog.schema import Provenance
from zluda_stack.catalog.text import load_text

_T = TypeVar("_T")
# Kinds that no pattern finds, but the code that reads assembly, strings and calls.
_OWN_TITLES = {
    "inline-ptx": "inline PTX",
    "inline-assembly": "inline assembly out of macros",
    "ptx-text": "PTX as text",
    "no-counterpart": "functions without a counterpart",
}


class Severity(str, Enum):
    """How much work a finding is, the most first; data/porting.yml describes each."""

    NOT_CONVERTIBLE = "not convertible"
    BY_HAND = "by hand"
    LOOK_AT = "look at"


class Rule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One thing to look for, and what to do about it."""

    kind: str
    title: str
    severity: Severity
    names: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    device_only: bool = False
    why: str
    instead: str
    source: str


class Substitute(Struct, frozen=True, forbid_unknown_fields=True):
    """What stands for some instructions of PTX."""

    instructions: tuple[str, ...]
    instead: str


class Interface(Struct, frozen=True, forbid_unknown_fields=True):
    """The functions of one library of CUDA, and those of them that become nothing."""

    title: str
    becomes: str
    functions: tuple[str, ...]
    missing: tuple[str, ...]
    source: str


class Macros(Struct, frozen=True, forbid_unknown_fields=True):
    """Macros that a compiler for AMD's cards surely defines, or surely does not."""

    defined: tuple[str, ...]
    undefined: tuple[str, ...]


class Porting(Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """All of it; `sources` by the names that the others use."""

    sources: dict[str, Provenance]
    macros: Macros
    rules: tuple[Rule, ...]
    assembly: tuple[Substitute, ...]
    interfaces: tuple[Interface, ...]
    builds: tuple[Rule, ...]

    def title_of(self, kind: str) -> str:
        """What findings of this kind are, in a few words."""
        return self._titles.get(kind, _OWN_TITLES.get(kind, kind))

    def rule_for_name(self, identifier: str) -> Rule | None:
        """The first rule whose names have this one."""
        return _chosen(self._by_name, self.rules, identifier)

    def rule_for_include(self, header: str) -> Rule | None:
        """The first rule whose headers have this one."""
        return _chosen(self._by_include, self.rules, header)

    def interface_of(self, function: str) -> Interface | None:
        """The library of CUDA whose functions are called like this one."""
        return _chosen(self._by_function, self.interfaces, function)

    def converts(self, interface: Interface, function: str) -> bool:
        """True when `function` of that library has a counterpart."""
        pattern = self._missing[interface.title]
        return pattern is None or pattern.fullmatch(function) is None

    def instead_of(self, instruction: str) -> str:
        """What stands for an instruction of PTX, empty when nobody wrote that down."""
        found = _chosen(self._by_instruction, self.assembly, instruction)
        return "" if found is None else found.instead

    def defined(self, macro: str) -> bool | None:
        """Whether a compiler for AMD's cards defines `macro`; None when that is not known."""
        if self._defined.fullmatch(macro):
            return True
        return False if self._undefined.fullmatch(macro) else None

    @cached_property
    def code_patterns(self) -> tuple[tuple[re.Pattern[str], Rule], ...]:
        """The patterns for the text of a source, each with its rule."""
        return _compiled(self.rules)

    @cached_property
    def build_patterns(self) -> tuple[tuple[re.Pattern[str], Rule], ...]:
        """The patterns for the text of a build file, each with its rule."""
        return _compiled(self.builds)

    @cached_property
    def _titles(self) -> dict[str, str]:
        return {rule.kind: rule.title for rule in (*self.rules, *self.builds)}

    @cached_property
    def _by_name(self) -> re.Pattern[str]:
        return _numbered([rule.names for rule in self.rules])

    @cached_property
    def _by_include(self) -> re.Pattern[str]:
        return _numbered([rule.includes for rule in self.rules])

    @cached_property
    def _by_function(self) -> re.Pattern[str]:
        return _numbered([interface.functions for interface in self.interfaces])

    @cached_property
    def _by_instruction(self) -> re.Pattern[str]:
        return _numbered([substitute.instructions for substitute in self.assembly])

    @cached_property
    def _missing(self) -> dict[str, re.Pattern[str] | None]:
        return {
            one.title: re.compile("|".join(one.missing)) if one.missing else None
            for one in self.interfaces
        }

    @cached_property
    def _defined(self) -> re.Pattern[str]:
        return re.compile("|".join(self.macros.defined))

    @cached_property
    def _undefined(self) -> re.Pattern[str]:
        return re.compile("|".join(self.macros.undefined))


def _compiled(rules: Iterable[Rule]) -> tuple[tuple[re.Pattern[str], Rule], ...]:
    return tuple((re.compile(text, re.MULTILINE), rule) for rule in rules for text in rule.code)


def _numbered(groups: Iterable[Sequence[str]]) -> re.Pattern[str]:
    """One pattern for all: its group nK has the patterns of the K-th."""
    named = (f"(?P<n{n}>{'|'.join(each)})" for n, each in enumerate(groups) if each)
    return re.compile("|".join(named))


def _chosen(pattern: re.Pattern[str], entries: Sequence[_T], text: str) -> _T | None:
    found = pattern.fullmatch(text)
    return entries[int(found.lastgroup[1:])] if found and found.lastgroup else None


def porting() -> Porting:
    """What HIP cannot take over. Raises StackError when the catalogue's file is broken."""
    return load_text("porting", Porting, "porting.py")
