"""Device code outside the sections that nvcc fills: fat binaries, cubins and PTX as plain data.

Programs that load their code themselves (cuModuleLoadData) carry it so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from mmap import mmap
from pathlib import Path
from struct import Struct as Layout

from msgspec import Struct

from zluda_stack.cuda import fatbin
from zluda_stack.cuda.elf import Section

_EM_CUDA = 190
_ELF = b"\x7fELF\x02\x01\x01"
# Of a 64-bit file header: machine, offset of the section headers, flags, their size and number.
_HEADER = Layout("<18xH20xQI6xHH2x")
# The ABI version since which the flags hold the architecture in their second byte: cubins of
# nvcc 13.0 are of version 8 and have 0x6005004 for sm_80, 0x6005a04 for sm_90a.
_ABI_VERSION_AT = 8
_SECOND_BYTE_SINCE = 8
_PTX = re.compile(rb"\.version\s+\d+\.\d+\s+\.target\s+sm_\d+")
_MOST_TEXT = 64 << 20
_KERNEL = re.compile(rb"\0\.text\.([^\0]+)")


class Blob(Struct, frozen=True):
    """A cubin (`architecture` is told) or PTX text (it is not), and where it lies in the file."""

    section: str
    offset: int
    size: int
    architecture: str | None


def kernels_in_cubin(cubin: bytes) -> tuple[str, ...]:
    """The mangled names of the functions in a cubin, by the sections that hold their code."""
    return tuple(sorted({name.decode(errors="replace") for name in _KERNEL.findall(cubin)}))


def architecture_of_cubin(start: bytes) -> str | None:
    """The architecture (sm_80) of the cubin that begins with `start`; None when it is no cubin."""
    if len(start) < _HEADER.size or not start.startswith(_ELF):
        return None
    machine, _, flags, _, _ = _HEADER.unpack_from(start)
    if machine != _EM_CUDA:
        return None
    if start[_ABI_VERSION_AT] >= _SECOND_BYTE_SINCE:
        return f"sm_{flags >> 8 & 0xFF}"
    return f"sm_{flags & 0xFF}"


def blobs(data: mmap, sections: Iterable[Section]) -> Iterator[Blob]:
    """Every cubin and PTX text in `sections`."""
    for section in sections:
        yield from _cubins(data, section)
        yield from _texts(data, section)


def fat_binaries(path: Path, data: mmap, sections: Iterable[Section]) -> Iterator[fatbin.Entry]:
    """The entries of fat binaries in `sections`, as far as what looks like one is one."""
    for section in sections:
        entries, _ = fatbin.entries_until_damage(path, data, section)
        yield from entries


def _cubins(data: mmap, section: Section) -> Iterator[Blob]:
    end = section.offset + section.size
    position = data.find(_ELF, section.offset, end)
    while position >= 0:
        start = data[position : min(position + _HEADER.size, end)]
        architecture = architecture_of_cubin(start)
        if architecture is not None:
            _, headers, _, size, number = _HEADER.unpack_from(start)
            length = min(headers + size * number, end - position)
            yield Blob(section.name, position, length, architecture)
        position = data.find(_ELF, position + 1, end)


def _texts(data: mmap, section: Section) -> Iterator[Blob]:
    end = section.offset + section.size
    position = data.find(b".version", section.offset, end)
    while position >= 0:
        if _PTX.match(data[position : min(position + 256, end)]):
            stop = data.find(b"\0", position, min(position + _MOST_TEXT, end))
            stop = end if stop < 0 else stop
            yield Blob(section.name, position, stop - position, None)
            position = stop
        position = data.find(b".version", position + 1, end)
