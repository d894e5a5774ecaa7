"""The fat binaries that nvcc puts into programs: containers of PTX and machine code.

nvcc writes them into the sections .nv_fatbin and __nv_relfatbin (relocatable code) of an ELF
file, one container after the other. A container is a header (magic, version, header size, size
of what follows) and entries, each with a header of its own that names its kind, architecture,
flags, and its size as stored and as unpacked; a payload may be packed with LZ4 or zstd.

NVIDIA documents the container's header only (fatbinary_section.h). The rest was learnt from
public readers, then checked against cuobjdump for every compression mode of nvcc 13.0:
cuda_types/src/dark_api.rs and dark_api/src/fatbin.rs of vosen/ZLUDA at 8a7931be,
n-eiling/cuda-fatbin-decompression, and fatbin/FORMAT_SPECIFICATION.md of GrigoryEvko/nvopen-tools
(all read 2026-11-30).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from mmap import MADV_DONTNEED
from pathlib import Path
from struct import Struct as Layout
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from zluda_stack.cuda import elf
from zluda_stack.errors import UsageError

if TYPE_CHECKING:
    from mmap import mmap

MAGIC = 0xBA55ED50.to_bytes(4, "little")
SECTIONS = (".nv_fatbin", "__nv_relfatbin")

_CONTAINER = Layout("<4sHHQ")
_CONTAINER_VERSION = 1
_ENTRY = Layout("<HHII4xI8xIIIQ8xQ")
_ENTRY_VERSION = 0x0101
_LZ4 = 0x2000
_ZSTD = 0x8000
_ARCHITECTURE_SPECIFIC = 0x100000
_FAMILY_SPECIFIC = 0x200000
# One byte of LZ4 stands for 255 at most (the format's block description), zstd knows no such
# bound; a module beyond the second limit is four times what ZLUDA itself unpacks.
_MOST_LZ4_RATIO = 255
_MOST_BYTES = 256 << 20
_LZ4_HEADROOM = 64
# A look at a header brings 64 KiB of the file into memory, which is to be given back now and then.
_FORGOTTEN_AFTER = 64


class CodeKind(str, Enum):
    """What an entry holds; OTHER is what only NVIDIA's own tools read, such as link-time IR."""

    PTX = "ptx"
    CUBIN = "cubin"
    OTHER = "other"


class Compression(str, Enum):
    """How an entry's payload is packed."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


_KINDS = {1: CodeKind.PTX, 2: CodeKind.CUBIN}


class Entry(Struct, frozen=True, kw_only=True):
    """One piece of code: where its payload lies in the file at `path`, and what it is.

    `architecture` is NVIDIA's name for what it was compiled for (sm_80, sm_90a, sm_100f); sizes
    are in bytes; `container` and `number` count from 1; `section` is None in a bare fat binary.
    """

    path: str
    section: str | None
    container: int
    number: int
    kind: CodeKind
    architecture: str
    identifier: str
    compression: Compression
    offset: int
    stored_size: int
    size: int

    def content(self) -> bytes:
        """The unpacked payload; PTX comes without the zeros at its end.

        Raises UsageError when it is OTHER code, which may be encrypted, or does not unpack to the
        size that its header names; HostProblem when the file is no longer readable.
        """
        if self.kind is CodeKind.OTHER:
            raise _unpackable(self, "it is neither PTX nor a cubin")
        with elf.mapped(Path(self.path)) as data:
            packed = data[self.offset : self.offset + self.stored_size]
        raw = _unpack(self, packed)
        return raw.rstrip(b"\0") if self.kind is CodeKind.PTX else raw


def read(path: Path) -> tuple[Entry, ...]:
    """All entries in the ELF file or bare fat binary at `path`, in the file's order.

    Nothing is unpacked. Raises UsageError when the file is neither or is damaged, HostProblem
    when it cannot be read.
    """
    with elf.mapped(path) as data:
        if data[: len(MAGIC)] == MAGIC:
            return tuple(_entries(path, data, elf.Section("", 0, len(data))))
    sections = [section for section in elf.read(path).sections if section.name in SECTIONS]
    with elf.mapped(path) as data:
        return tuple(entry for section in sections for entry in _entries(path, data, section))


def entries_until_damage(
    path: Path, data: mmap, section: elf.Section
) -> tuple[tuple[Entry, ...], str | None]:
    """The entries in a part of a mapped file, and what is wrong behind the last, if anything."""
    found: list[Entry] = []
    try:
        for entry in _entries(path, data, section):
            found.append(entry)
    except UsageError as error:
        return tuple(found), error.message
    return tuple(found), None


class _Header(NamedTuple):
    """The fields of an entry's header that are used here, in their order; sizes in bytes.

    `padded` is what the payload takes in the container, `packed` its size when it is compressed,
    `unpacked` what it then unpacks to; `name_at` counts from the header's start.
    """

    kind: int
    version: int
    size: int
    padded: int
    packed: int
    sm: int
    name_at: int
    name_size: int
    flags: int
    unpacked: int


def _entries(path: Path, data: mmap, section: elf.Section) -> Iterator[Entry]:
    end = section.offset + section.size
    position = data.find(MAGIC, section.offset, end)
    container = 0
    while position >= 0:
        if container % _FORGOTTEN_AFTER == 0:
            data.madvise(MADV_DONTNEED)
        container += 1
        place = f"fat binary {container} of {section.name or 'the file'}"
        if end - position < _CONTAINER.size:
            raise elf.damaged(path, f"{place} ends in its header")
        _, version, header_size, size = _CONTAINER.unpack_from(data, position)
        if version != _CONTAINER_VERSION or header_size < _CONTAINER.size:
            raise elf.damaged(path, f"{place} has version {version}, which nobody documented")
        position += header_size
        if position + size > end:
            raise elf.damaged(path, f"{place} is longer than what holds it")
        for number, (offset, header) in enumerate(
            _headers(path, data, container, position, position + size), start=1
        ):
            name = data[offset : offset + header.size][header.name_at :][: header.name_size]
            compression = _compression(header.flags)
            plain = compression is Compression.NONE
            yield Entry(
                path=str(path),
                section=section.name or None,
                container=container,
                number=number,
                kind=_KINDS.get(header.kind, CodeKind.OTHER),
                architecture=_architecture(header.sm, header.flags),
                identifier=name.rstrip(b"\0").decode(errors="replace") if header.name_at else "",
                compression=compression,
                offset=offset + header.size,
                stored_size=header.padded if plain else header.packed,
                size=header.padded if plain else header.unpacked,
            )
        position = data.find(MAGIC, position + size, end)


def _headers(
    path: Path, data: mmap, container: int, position: int, end: int
) -> Iterator[tuple[int, _Header]]:
    """The headers between two places in the file, with where each begins."""
    number = 0
    while end - position >= _ENTRY.size:
        number += 1
        place = f"entry {number} of fat binary {container}"
        header = _Header(*_ENTRY.unpack_from(data, position))
        if header.version != _ENTRY_VERSION or header.size < _ENTRY.size:
            raise elf.damaged(
                path, f"{place} has version {header.version:#x}, which nobody documented"
            )
        following = position + header.size + max(header.padded, header.packed)
        if following > end:
            raise elf.damaged(path, f"{place} is longer than its fat binary")
        yield position, header
        position = following


def _compression(flags: int) -> Compression:
    if flags & _LZ4:
        return Compression.LZ4
    return Compression.ZSTD if flags & _ZSTD else Compression.NONE


def _architecture(sm: int, flags: int) -> str:
    if flags & _ARCHITECTURE_SPECIFIC:
        return f"sm_{sm}a"
    return f"sm_{sm}f" if flags & _FAMILY_SPECIFIC else f"sm_{sm}"


def _unpack(entry: Entry, packed: bytes) -> bytes:
    if entry.compression is Compression.NONE:
        return packed
    if entry.size > _MOST_BYTES:
        raise _unpackable(entry, f"it claims to hold {entry.size} bytes")
    raw = _lz4(entry, packed) if entry.compression is Compression.LZ4 else _zstd(entry, packed)
    if len(raw) != entry.size:
        raise _unpackable(entry, f"it holds {len(raw)} bytes, not {entry.size}")
    return raw


def _lz4(entry: Entry, packed: bytes) -> bytes:
    from lz4.block import LZ4BlockError, decompress

    if entry.size > _MOST_LZ4_RATIO * len(packed) + _LZ4_HEADROOM:
        raise _unpackable(entry, f"{len(packed)} bytes of LZ4 cannot hold {entry.size}")
    try:
        return bytes(decompress(packed, uncompressed_size=entry.size))
    except LZ4BlockError as error:
        raise _unpackable(entry, str(error)) from error


def _zstd(entry: Entry, packed: bytes) -> bytes:
    from zstandard import ZstdDecompressor, ZstdError, frame_content_size

    try:
        if frame_content_size(packed) not in {-1, entry.size}:
            raise _unpackable(entry, "its two sizes differ")
        return ZstdDecompressor().decompress(packed, max_output_size=entry.size)
    except ZstdError as error:
        raise _unpackable(entry, str(error)) from error


def _unpackable(entry: Entry, problem: str) -> UsageError:
    place = f"entry {entry.number} of fat binary {entry.container}"
    return elf.damaged(entry.path, f"{place} cannot be unpacked: {problem}")
