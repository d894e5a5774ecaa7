"""What `advise` says and when, as the catalogue has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from zluda_stack.catalog.schema import Provenance
from zluda_stack.catalog.text import load_text

Path = Literal[
    "translate", "native", "port", "rocm", "cuda", "vulkan", "cpu", "new", "look", "none"
]
Condition = Mapping[str, tuple[str, ...]]


class Way(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One thing that can be done; texts and commands have places in braces."""

    path: Path
    title: str
    why: str
    needs: dict[str, tuple[str, ...]] = {}
    unless: dict[str, tuple[str, ...]] = {}
    commands: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    provenance: Provenance


class Rule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When what is said, and the names of the ways in their order."""

    code: str
    when: dict[str, tuple[str, ...]]
    says: str
    ways: tuple[str, ...]


class Book(Struct, frozen=True, forbid_unknown_fields=True):
    """All ways by name, and the rules, of which the first that holds decides."""

    ways: dict[str, Way]
    rules: tuple[Rule, ...]


def advice() -> Book:
    """What advise says. Raises StackError when the catalogue's file is broken."""
    return load_text("advice", Book, "advice.py")
