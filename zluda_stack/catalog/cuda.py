"""The libraries of CUDA and the device code that ZLUDA takes, as the catalogue has them."""

from __future__ import annotations

import re
from enum import Enum
from functools import cached_property

from msgspec import Struct

from zluda_stack.catalog.schema import Provenance
from zluda_stack.catalog.text import load_text

_IN_A_WHEEL = re.compile(r"-[0-9a-f]{8}$")


class Role(str, Enum):
    """What ZLUDA does about a library; each is described in data/cuda-libraries.yml."""

    REPLACED = "replaced"
    INSIDE = "inside"
    RUNTIME = "runtime"
    ON_DRIVER = "on-driver"
    HOST_ONLY = "host-only"
    COMPILER = "compiler"
    DRIVER_PART = "driver-part"


class CudaLibrary(Struct, frozen=True, forbid_unknown_fields=True):
    """One library: its files' names up to ".so", and how the names of its functions begin."""

    files: tuple[str, ...]
    title: str
    role: Role
    functions: tuple[str, ...] = ()


class CudaLibraries(Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """All libraries of CUDA; `system` are those that any Linux system has."""

    libraries: tuple[CudaLibrary, ...]
    system: frozenset[str]
    provenance: Provenance

    def named(self, file: str) -> CudaLibrary | None:
        """The library that the file name `file` (libcublas.so.13) stands for, if any.

        A library that was copied into a wheel has eight digits of a hash behind its name.
        """
        stem, is_library, _ = file.partition(".so")
        return self._by_file.get(_IN_A_WHEEL.sub("", stem)) if is_library else None

    def with_function(self, name: str) -> CudaLibrary | None:
        """The library whose functions are called like `name`, if any."""
        found = self._by_function.match(name)
        return self.libraries[int(found.lastgroup[1:])] if found and found.lastgroup else None

    @cached_property
    def stems(self) -> tuple[str, ...]:
        """The names of all files up to ".so", the longest first."""
        return tuple(sorted(self._by_file, key=lambda stem: (-len(stem), stem)))

    @cached_property
    def _by_file(self) -> dict[str, CudaLibrary]:
        return {file: library for library in self.libraries for file in library.files}

    @cached_property
    def _by_function(self) -> re.Pattern[str]:
        groups = (
            f"(?P<n{number}>{'|'.join(library.functions)})"
            for number, library in enumerate(self.libraries)
            if library.functions
        )
        return re.compile("|".join(groups))


class SpecialRegisters(Struct, frozen=True, forbid_unknown_fields=True):
    """The special registers of PTX, without % and component, by what ZLUDA makes of them."""

    known: frozenset[str]
    leaves_out_kernel: frozenset[str]
    refuses_module: frozenset[str]


class ZludaCode(Struct, frozen=True, forbid_unknown_fields=True):
    """`compute_capability` is what ZLUDA reports by default.

    `forms` are whole instructions: of those opcodes no others are known. `unknown_forms` are what
    is missing of opcodes that are known otherwise.
    """

    compute_capability: str
    special_registers: SpecialRegisters
    forms: dict[str, frozenset[str]]
    unknown_forms: frozenset[str]
    provenance: Provenance


def cuda_libraries() -> CudaLibraries:
    """The libraries of CUDA. Raises StackError when the catalogue's file is broken."""
    return load_text("cuda-libraries", CudaLibraries, "cuda.py")


def zluda_code() -> ZludaCode:
    """What ZLUDA makes of device code. Raises StackError when the catalogue's file is broken."""
    return load_text("zluda-code", ZludaCode, "cuda.py")
