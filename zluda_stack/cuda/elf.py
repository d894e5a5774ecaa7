"""What an ELF file needs from other libraries, offers to them, and holds.

pyelftools reads headers, sections and the dynamic table. Symbols are unpacked here: its symbol
objects take 20 s for a library the size of libtorch, and it trusts the counts in a file.
"""

from __future__ import annotations

import mmap
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct as Layout
from struct import iter_unpack
from typing import IO, TypeVar, cast

from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import Section as ElfSection
from elftools.elf.segments import InterpSegment
from elftools.elf.segments import Segment as ElfSegment
from msgspec import Struct

from zluda_stack.errors import HostProblem, UsageError

MAGIC = b"\x7fELF"

_Segment = TypeVar("_Segment", bound=ElfSegment)

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
# By the width of the file: a symbol's fields, and which of them are binding and section.
_SYMBOL = {64: ("IBBHQQ", 1, 3), 32: ("IIIBBH", 3, 5)}
_SMALLEST_RECORD = 16
# How often pyelftools may read a file over; headers, names and versions take far less than once.
_MOST_READS = 4
_READS_OF_ANY = 1 << 20
# Symbol names may share their ends in the string table, but not more than this on average.
_MOST_SHARING = 8
_HINT = "Copy or download the file again; `readelf --all` shows what is left of it."


class Section(Struct, frozen=True):
    """A section, with its place and size in the file, in bytes (size 0 when it takes none)."""

    name: str
    offset: int
    size: int


class Import(Struct, frozen=True):
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
            problem = str(error) or type(error).__name__
            raise damaged(path, f"its headers cannot be followed ({problem})") from error


def damaged(path: Path | str, problem: str) -> UsageError:
    """The error that says what is wrong inside the file at `path`."""
    return UsageError(f"{path} is damaged: {problem}", _HINT)


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    """The bytes of the file at `path`, without reading them all.

    Raises HostProblem when it cannot be read, UsageError when it is no file or an empty one.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a regular file", "Name a program or a shared library.")
    try:
        with path.open("rb") as handle:
            data = mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ)
    except OSError as error:
        raise HostProblem(
            f"cannot read {path}: {error.strerror}", "Check the path and its permissions."
        ) from error
    except ValueError as error:
        raise UsageError(f"{path} is empty", _HINT) from error
    with data:
        yield data


class _Reader:
    """Reads one mapped ELF file; every place and size is checked against the file's own size."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.file = ELFFile(cast("IO[bytes]", _Metered(path, data)))
        self.order = "<" if self.file.little_endian else ">"
        self.sections = list(self.file.iter_sections())
        self.segments = list(self.file.iter_segments())

    def elf(self) -> Elf:
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
            imports=tuple(sorted(imports, key=lambda found: (found.name, found.library or ""))),
            exports=tuple(sorted(exports)),
            sections=tuple(self._placed(section) for section in self.sections),
        )

    def _placed(self, section: ElfSection) -> Section:
        size = 0 if section["sh_type"] == "SHT_NOBITS" else section["sh_size"]
        if size and section["sh_offset"] + size > len(self.data):
            raise damaged(self.path, f"its section {section.name!r} lies outside the file")
        return Section(section.name, section["sh_offset"], size)

    def _dynamic(self) -> dict[str, list[str]]:
        """The values of DT_NEEDED, DT_SONAME, DT_RPATH and DT_RUNPATH, by their short names."""
        found: dict[str, list[str]] = {}
        segment = self._segment(DynamicSegment)
        for tag in () if segment is None else segment.iter_tags():
            for name in ("needed", "soname", "rpath", "runpath"):
                if hasattr(tag, name):
                    found.setdefault(name, []).append(getattr(tag, name))
        return found

    def _interpreter(self) -> str | None:
        segment = self._segment(InterpSegment)
        return None if segment is None else segment.get_interp_name()

    def _segment(self, kind: type[_Segment]) -> _Segment | None:
        return next((found for found in self.segments if isinstance(found, kind)), None)

    def _section(self, kind: str) -> ElfSection | None:
        return next((found for found in self.sections if found["sh_type"] == kind), None)

    def _symbols(self) -> tuple[set[Import], set[str]]:
        table = self._section("SHT_DYNSYM")
        if table is None:
            if self._segment(DynamicSegment) is not None:
                raise damaged(self.path, "its section headers are gone, so its symbols are unknown")
            return set(), set()
        names = _Names(self.path, self._bytes(self.sections[table["sh_link"]]))
        libraries = self._libraries_by_version()
        versions = self._versions()
        imports, exports = set(), set()
        layout, binding, section = _SYMBOL[self.file.elfclass]
        for number, record in enumerate(self._records(table, layout)):
            name = names.at(record[0])
            if not name or record[binding] >> 4 == _LOCAL:
                continue
            if record[section] != _UNDEFINED:
                exports.add(name)
                continue
            version = versions[number] & ~_VERSION_HIDDEN if number < len(versions) else 0
            imports.add(Import(name, libraries.get(version)))
        return imports, exports

    def _versions(self) -> array[int]:
        """For each dynamic symbol the index of its version; empty where none has one."""
        found = array("H")  # a damaged table may be as long as the file: no object for each index
        if table := self._section("SHT_GNU_versym"):
            raw = self._bytes(table)
            found.frombytes(raw[: len(raw) // found.itemsize * found.itemsize])
        if self.order != ("<" if sys.byteorder == "little" else ">"):
            found.byteswap()
        return found

    def _libraries_by_version(self) -> dict[int, str]:
        table = self._section("SHT_GNU_verneed")
        found: dict[int, str] = {}
        if not isinstance(table, GNUVerNeedSection):
            return found
        for need, versions in table.iter_versions():
            for version in versions:
                if version["vna_other"] > _NO_VERSION_INDEX:
                    found[version["vna_other"]] = str(need.name)
        return found

    def _records(self, section: ElfSection, layout: str) -> Iterator[tuple[int, ...]]:
        size = Layout(self.order + layout).size
        raw = self._bytes(section)
        return iter_unpack(self.order + layout, raw[: len(raw) // size * size])

    def _bytes(self, section: ElfSection) -> bytes:
        return self.data[section["sh_offset"] : section["sh_offset"] + section["sh_size"]]


class _Metered:
    """A file for pyelftools that ends its reading where it can only be led in circles.

    It follows counts and offsets of the file without limit; each read costs here at least what a
    small record takes, so that the reads of any file are bounded by its size.
    """

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._left = _MOST_READS * len(data) + _READS_OF_ANY

    def seek(self, offset: int, whence: int = 0) -> int:
        # Beyond the end of a mapping is an error; beyond the end of a file, reads are empty.
        base = (0, self._data.tell(), len(self._data))[whence]
        self._data.seek(max(0, min(base + offset, len(self._data))))
        return self.tell()

    def tell(self) -> int:
        return self._data.tell()

    def read(self, size: int = -1) -> bytes:
        raw = self._data.read(size)
        self._left -= max(len(raw), _SMALLEST_RECORD)
        if self._left < 0:
            raise damaged(self._path, "its headers lead in circles")
        return raw


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
