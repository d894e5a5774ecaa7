"""What the self-test programs say: one line of JSON each (images/selftest/src/selftest)."""

from __future__ import annotations

import msgspec
from msgspec import Struct

# The line of the script itself, for them all.
_SUMMARY = "selftest"


class Program(Struct, frozen=True, kw_only=True):
    """One CUDA or HIP program that compared its results with the CPU's.

    `device` is the name that the card has there; None when there was none, or none was reached.
    """

    test: str
    ok: bool
    detail: str
    device: str | None


def read(line: str) -> Program | None:
    """The program that wrote `line`; None for any other text."""
    try:
        return msgspec.json.decode(line, type=Program)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def found_no_device(program: Program) -> bool:
    """True when the program says that there is none."""
    return program.detail.startswith(("no CUDA device", "no ROCm device"))


def without_summary(programs: list[Program]) -> tuple[Program, ...]:
    """The programs, without the line for them all."""
    return tuple(program for program in programs if program.test != _SUMMARY)


def device(programs: tuple[Program, ...]) -> str | None:
    """The card that they computed on; None when it is not one for all that passed."""
    names = {program.device for program in programs if program.ok}
    return names.pop() if len(names) == 1 else None
