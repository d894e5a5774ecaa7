"""Which CUDA functions and PTX opcodes a program uses that ZLUDA does not cover."""

from __future__ import annotations

import re
from enum import Enum

from msgspec import Struct

from zluda_stack.catalog.coverage import Coverage
from zluda_stack.cuda.elf import Elf, Import
from zluda_stack.cuda.ptx import PtxModule

# The names of the functions in the libraries that ZLUDA replaces. libcudart's begin with "cuda":
# ZLUDA leaves that library to the application.
_NAMES = re.compile(r"(cu[A-Z]|cublas|cudnn|cufft|cusparse|nvml)")
_LIBRARY_VERSION = re.compile(r"(\.so)((?:\.\d+)*)$")


class Support(str, Enum):
    """What ZLUDA does with a function: UNKNOWN ones it does not even export."""

    IMPLEMENTED = "implemented"
    NOT_IMPLEMENTED = "not implemented"
    UNKNOWN = "unknown to ZLUDA"


class SymbolUse(Struct, frozen=True):
    """A CUDA function that a program imports; `library` is ZLUDA's, None when none exports it."""

    name: str
    library: str | None
    support: Support


def cuda_symbols(coverage: Coverage, elf: Elf) -> tuple[SymbolUse, ...]:
    """Every function that `elf` imports from a library that ZLUDA replaces, by name.

    What a program looks up by name while it runs (dlsym, cuGetProcAddress) is no import: a
    static libcudart reaches the whole driver API that way.
    """
    uses = {use for symbol in elf.imports if (use := _use(coverage, elf, symbol)) is not None}
    return tuple(sorted(uses, key=lambda use: (use.name, use.library or "")))


def unknown_opcodes(coverage: Coverage, module: PtxModule) -> dict[str, int]:
    """The opcodes in `module` that ZLUDA's parser does not know, with how often each is used.

    That an opcode is known says nothing of its modifiers: only the compiler knows all of them.
    """
    known = coverage.ptx_opcodes_parsed
    return {opcode: uses for opcode, uses in module.opcodes.items() if opcode not in known}


def _use(coverage: Coverage, elf: Elf, symbol: Import) -> SymbolUse | None:
    for library in _candidates(coverage, elf, symbol):
        functions = coverage.libraries[library]
        if symbol.name in functions.implemented:
            return SymbolUse(symbol.name, library, Support.IMPLEMENTED)
        if symbol.name in functions.not_implemented:
            return SymbolUse(symbol.name, library, Support.NOT_IMPLEMENTED)
    asked = symbol.library and zluda_library(coverage, symbol.library)
    if asked or (symbol.library is None and _NAMES.match(symbol.name)):
        return SymbolUse(symbol.name, asked or None, Support.UNKNOWN)
    return None


def _candidates(coverage: Coverage, elf: Elf, symbol: Import) -> list[str]:
    """ZLUDA's libraries that may answer for `symbol`: the one asked, or the needed ones first."""
    if symbol.library is not None:
        asked = zluda_library(coverage, symbol.library)
        return [asked] if asked else []
    needed = [zluda_library(coverage, name) for name in elf.needed]
    first = [library for library in needed if library]
    return first + [library for library in coverage.libraries if library not in first]


def zluda_library(coverage: Coverage, soname: str) -> str | None:
    """ZLUDA's name for the library that a program calls `soname`; None when it replaces none.

    ZLUDA answers to some libraries by one version only (libcudnn.so.8), to others by any
    (libcublas.so for libcublas.so.13).
    """
    major = _LIBRARY_VERSION.sub(lambda found: found[1] + _first_part(found[2]), soname)
    bare = _LIBRARY_VERSION.sub(r"\1", soname)
    return next((name for name in (soname, major, bare) if name in coverage.libraries), None)


def _first_part(version: str) -> str:
    parts = version.split(".")
    return f".{parts[1]}" if len(parts) > 1 else ""
