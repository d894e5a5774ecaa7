"""Everything that `check` can find, each with an id that stays the same; docs/check.md has them."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Severity(str, Enum):
    """What a gap does to the verdict of its file: a note does nothing."""

    CANNOT = "cannot run"
    UNJUDGED = "cannot be judged"
    GAP = "gap"
    NOTE = "note"


class Rule(Struct, frozen=True):
    """One kind of gap: its id, a name for machines, and what it means in one sentence.

    `many` says it of several subjects at once: {n} of them, {of} what they belong to.
    """

    id: str
    name: str
    severity: Severity
    meaning: str
    many: str = ""


class Gap(Struct, frozen=True, kw_only=True):
    """One gap of one file. `subject` is a symbol, an opcode, a library or a module.

    `of` is what the subject belongs to, where that is told apart. `used_by` are the demangled
    kernels that use it; `fix` is what to do.
    """

    id: str
    severity: Severity
    subject: str
    text: str
    used_by: tuple[str, ...] = ()
    fix: str
    of: str = ""


_C, _U, _G, _N = Severity.CANNOT, Severity.UNJUDGED, Severity.GAP, Severity.NOTE
OTHER_MACHINE = Rule("ZSC101", "other-machine", _C, "The file is not for 64-bit x86.")
NOT_GLIBC = Rule("ZSC102", "not-glibc", _C, "The program is for another C library than glibc.")
UNREADABLE = Rule("ZSC103", "unreadable", _U, "The file is damaged, or cannot be read.")
NOT_GIVEN = Rule(
    "ZSC104",
    "library-not-given",
    _N,
    "A needed library is not among what was given.",
    many="{n} libraries are not among what was given",
)
NO_PTX = Rule("ZSC201", "no-ptx", _C, "There is machine code for NVIDIA's cards and no PTX.")
TOO_NEW = Rule("ZSC202", "ptx-too-new", _G, "All PTX is for a later card than ZLUDA reports.")
ONE_CARD = Rule("ZSC203", "ptx-for-one-card", _G, "The PTX is for one kind of card alone.")
LOST_KERNELS = Rule("ZSC204", "kernels-without-ptx", _G, "Some kernels come without PTX.")
RELOCATABLE = Rule("ZSC205", "relocatable-code", _G, "Device code is linked when it is loaded.")
OPCODE = Rule(
    "ZSC206",
    "unknown-opcode",
    _G,
    "ZLUDA's parser does not know an instruction.",
    many="{n} instructions are unknown to ZLUDA, which leaves their kernels out",
)
FORM = Rule(
    "ZSC207",
    "unknown-form",
    _G,
    "ZLUDA's parser does not know a form of an instruction.",
    many="{n} forms of instructions are unknown to ZLUDA, which leaves their kernels out",
)
REGISTER = Rule("ZSC208", "unknown-register", _G, "ZLUDA does not know a special register.")
BAD_MODULE = Rule(
    "ZSC209",
    "unreadable-module",
    _G,
    "A PTX module is damaged.",
    many="{n} PTX modules are damaged",
)
NOT_COMPILED = Rule(
    "ZSC210",
    "not-compiled",
    _G,
    "ZLUDA's compiler does not take a module.",
    many="{n} PTX modules do not fully compile for {of}",
)
OTHER_CODE = Rule("ZSC211", "link-time-code", _G, "There is only code that NVIDIA's linker reads.")
NOT_IMPLEMENTED = Rule(
    "ZSC301",
    "not-implemented",
    _G,
    "ZLUDA does not implement a function.",
    many="{n} functions of {of} are not implemented: they return errors",
)
NOT_EXPORTED = Rule(
    "ZSC302",
    "not-exported",
    _G,
    "ZLUDA does not even export a function.",
    many="{n} functions are not exported by ZLUDA: the program stops where they are bound",
)
LOOKED_UP = Rule("ZSC303", "looked-up", _G, "A function that is looked up is not implemented.")
STATIC_CUDART = Rule("ZSC304", "static-cudart", _N, "The CUDA runtime is linked in.")
EMPTY_LIBRARY = Rule("ZSC305", "library-not-implemented", _G, "ZLUDA implements none of a library.")
OWN_CODE = Rule("ZSC306", "library-not-replaced", _G, "NVIDIA's library brings code of its own.")
DRIVER_PART = Rule("ZSC307", "driver-part", _G, "A part of NVIDIA's driver has no stand-in.")
COMPILES = Rule("ZSC308", "compiles-at-run-time", _G, "Device code is made while it runs.")
REPLACED = Rule("ZSC309", "replaced", _N, "ZLUDA brings this library, and the file is not used.")

RULES: tuple[Rule, ...] = (
    *(OTHER_MACHINE, NOT_GLIBC, UNREADABLE, NOT_GIVEN),
    *(NO_PTX, TOO_NEW, ONE_CARD, LOST_KERNELS, RELOCATABLE, OPCODE, FORM, REGISTER),
    *(BAD_MODULE, NOT_COMPILED, OTHER_CODE),
    *(NOT_IMPLEMENTED, NOT_EXPORTED, LOOKED_UP, STATIC_CUDART, EMPTY_LIBRARY, OWN_CODE),
    *(DRIVER_PART, COMPILES, REPLACED),
)


def gap(
    rule: Rule, subject: str, text: str, fix: str, *, used_by: tuple[str, ...] = (), of: str = ""
) -> Gap:
    """A gap of the kind `rule`."""
    return Gap(
        id=rule.id,
        severity=rule.severity,
        subject=subject,
        text=text,
        used_by=used_by,
        fix=fix,
        of=of,
    )
