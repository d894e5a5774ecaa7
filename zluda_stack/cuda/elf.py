"""What an ELF file needs from other libraries, offers to them, and holds.

pyelftools reads headers, sections and the dynamic table. Symbols are unpacked here: its symbol
objects take 20 s for a library the size of libtorch, and it trusts the counts in a file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from struct import Struct as Layout
from struct import iter_unpack
from typing import IO, cast

from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import Section as ElfSection
from elftools.elf.segments import InterpSegment
from msgspec import Struct

from zluda_stack.errors import HostProblem, UsageError

MAGIC = b"\x7fELF"

# As `uname -m` spells them, where it knows them.
_MACHINES = {
    "EM_X86_64": "x86_64",
    "EM_AARCH64": "aarch64",
    "EM_386": "i686",
    "EM_CUDA": "CUDA",
    "EM_AMDGPU": "AMDGPU",
}
_KINDS = {"ET_EXEC": "executable", "ET_DYN": "shared object", "ET_REL": "relocatable"}
_UNDEFINED = 0
_LOCAL = 0
_NO_VERSION_INDEX = 1
_VERSION_HIDDEN = 0x8000
_SMALLEST_VERSION_RECORD = 16
# Symbol names may share their ends in the string table, but not more than this on average.
_MOST_SHARING = 8
_HINT = "Copy or download the file again; `readelf --all` shows what is left of it."


class Section(Struct, frozen=True):
    """A section, with its place and size in the file, in bytes (size 0 when it takes none)."""

    name: str
    offset: int
    size: int


class Import(Struct, frozen=True, order=True):
    """An undefined dynamic symbol; `library` is the one that its version is asked of, if any."""

    name: str
    library: str | None = None


class Elf(Struct, frozen=True, kw_only=True):
    """One ELF file. `machine` is spelled as by `uname -m`, or CUDA, AMDGPU, or ELF's own name."""

    path: str
    machine: str
    bits: int
    kind: str
    soname: str | None
    interpreter: str | None
    needed: tuple[str, ...]
    rpath: str | None
    runpath: str | None
    imports: tuple[Import, ...]
    exports: tuple[str, ...]
    sections: tuple[Section, ...]


def is_elf(path: Path) -> bool:
    """Whether `path` is a readable file that begins like an ELF file."""
    try:
        with path.open("rb") as handle:
            return handle.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read(path: Path) -> Elf:
    """What the ELF file at `path` says of itself.

    Raises UsageError when it is no ELF file or a damaged one, HostProblem when it cannot be read.
    Reads no more than the file holds, whatever its headers claim.
    """
    with mapped(path) as data:
        if data[: len(MAGIC)] != MAGIC:
            raise UsageError(f"{path} is not an ELF file", "Name a program or a shared library.")
        try:
            return _Reader(path, data).elf()
        except UsageError:
            raise
        # pyelftools answers damage with whatever its own code stumbles over.
        except Exception as error:
            raise damaged(path, str(error) or type(error).__name__) from error


def damaged(path: Path | str, problem: str) -> UsageError:
    """The error that says what is wrong inside the file at `path`."""
    return UsageError(f"{path} is damaged: {problem}", _HINT)


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    """The bytes of the file at `path`, without reading them all.

    Raises HostProblem when it cannot be read, UsageError when there is nothing in it.
    """
    try:
        with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ) as data:
            yield data
    except OSError as error:
        raise HostProblem(
            f"cannot read {path}: {error.strerror}", "Check the path and its permissions."
        ) from error
    except ValueError as error:
        raise UsageError(f"{path} is empty", _HINT) from error


class _Reader:
    """Reads one mapped ELF file; every place and size is checked against the file's own size."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.file = ELFFile(cast("IO[bytes]", data))
        self.order = "<" if self.file.little_endian else ">"

    def elf(self) -> Elf:
        sections = self._sections()
        dynamic = self._dynamic()
        imports, exports = self._symbols()
        return Elf(
            path=str(self.path),
            machine=_MACHINES.get(self.file["e_machine"], str(self.file["e_machine"])),
            bits=self.file.elfclass,
            kind=_KINDS.get(self.file["e_type"], str(self.file["e_type"])),
            soname=_one(dynamic, "soname"),
            interpreter=self._interpreter(),
            needed=tuple(dynamic.get("needed", ())),
            rpath=_one(dynamic, "rpath"),
            runpath=_one(dynamic, "runpath"),
            imports=tuple(sorted(imports)),
            exports=tuple(sorted(exports)),
            sections=tuple(sections),
        )

    def _sections(self) -> Iterator[Section]:
        count, each = self.file.num_sections(), self.file["e_shentsize"]
        if count and self.file["e_shoff"] + count * each > len(self.data):
            raise damaged(self.path, "its section headers lie outside the file")
        for section in self.file.iter_sections():
            size = 0 if section["sh_type"] == "SHT_NOBITS" else section["sh_size"]
            if section["sh_offset"] + size > len(self.data) and size:
                raise damaged(self.path, f"its section {section.name!r} lies outside the file")
            yield Section(section.name, section["sh_offset"], size)

    def _dynamic(self) -> dict[str, list[str]]:
        """The values of DT_NEEDED, DT_SONAME, DT_RPATH and DT_RUNPATH, by their short names."""
        found: dict[str, list[str]] = {}
        for segment in self.file.iter_segments("PT_DYNAMIC"):
            tags = segment.iter_tags() if isinstance(segment, DynamicSegment) else ()
            for tag in tags:
                for name in ("needed", "soname", "rpath", "runpath"):
                    if hasattr(tag, name):
                        found.setdefault(name, []).append(getattr(tag, name))
        return found

    def _interpreter(self) -> str | None:
        for segment in self.file.iter_segments("PT_INTERP"):
            if isinstance(segment, InterpSegment):
                return segment.get_interp_name()
        return None

    def _symbols(self) -> tuple[set[Import], set[str]]:
        table = next(self.file.iter_sections("SHT_DYNSYM"), None)
        if table is None:
            if any(self.file.iter_segments("PT_DYNAMIC")):
                raise damaged(self.path, "its section headers are gone, so its symbols are unknown")
            return set(), set()
        layout = "IBBHQQ" if self.file.elfclass == 64 else "IIIBBH"
        names = _Names(self.path, self._bytes(self.file.get_section(table["sh_link"])))
        libraries = self._libraries_by_version()
        versions = self._versions()
        imports, exports = set(), set()
        for number, record in enumerate(self._records(table, layout)):
            offset, bind, section = (
                (record[0], record[1] >> 4, record[3])
                if self.file.elfclass == 64
                else (record[0], record[3] >> 4, record[5])
            )
            name = names.at(offset)
            if not name or bind == _LOCAL:
                continue
            if section != _UNDEFINED:
                exports.add(name)
                continue
            version = versions[number] & ~_VERSION_HIDDEN if number < len(versions) else 0
            imports.add(Import(name, libraries.get(version)))
        return imports, exports

    def _versions(self) -> list[int]:
        """For each dynamic symbol the index of its version; empty where none has one."""
        table = next(self.file.iter_sections("SHT_GNU_versym"), None)
        return [] if table is None else [index for (index,) in self._records(table, "H")]

    def _libraries_by_version(self) -> dict[int, str]:
        table = next(self.file.iter_sections("SHT_GNU_verneed"), None)
        found: dict[int, str] = {}
        if not isinstance(table, GNUVerNeedSection):
            return found
        most = table["sh_size"] // _SMALLEST_VERSION_RECORD
        for need, versions in islice(table.iter_versions(), most):
            for version in islice(versions, most):
                if version["vna_other"] > _NO_VERSION_INDEX:
                    found[version["vna_other"]] = str(need.name)
        return found

    def _records(self, section: ElfSection, layout: str) -> Iterator[tuple[int, ...]]:
        size = Layout(self.order + layout).size
        raw = self._bytes(section)
        return iter_unpack(self.order + layout, raw[: len(raw) // size * size])

    def _bytes(self, section: ElfSection) -> bytes:
        return self.data[section["sh_offset"] : section["sh_offset"] + section["sh_size"]]


class _Names:
    """A string table that is asked for names by their offsets."""

    def __init__(self, path: Path, table: bytes) -> None:
        self._path = path
        self._table = table
        self._left = _MOST_SHARING * len(table)

    def at(self, offset: int) -> str:
        end = self._table.find(b"\0", offset)
        if end < 0:
            raise damaged(self._path, "a symbol's name lies outside its string table")
        self._left -= end - offset
        if self._left < 0:
            raise damaged(self._path, "its symbols' names overlap beyond reason")
        return self._table[offset:end].decode(errors="replace")


def _one(dynamic: dict[str, list[str]], name: str) -> str | None:
    values = dynamic.get(name)
    return values[0] if values else None
