"""Fat binaries written by hand, for what no nvcc is needed."""

from __future__ import annotations

import struct

import lz4.block
import zstandard

PTX = 1
CUBIN = 2
LINK_TIME_IR = 8
LZ4 = 0x2000
ARCHITECTURE_SPECIFIC = 0x100000
ZSTD = 0x8000


def entry(
    content: bytes, *, kind: int = PTX, sm: int = 80, flags: int = 0, unpacked: int | None = None
) -> bytes:
    """One entry as nvcc lays it out; `unpacked` lies about the unpacked size."""
    packed = content
    if flags & LZ4:
        packed = lz4.block.compress(content, store_size=False)
    elif flags & ZSTD:
        packed = zstandard.ZstdCompressor().compress(content)
    padded = packed + bytes(-len(packed) % 8)
    is_packed = bool(flags & (LZ4 | ZSTD))
    size = len(content) if unpacked is None else unpacked
    header = struct.pack(
        "<HHIIIIIHHIIIQQQ",
        *(kind, 0x0101, 64, len(padded), 0, len(packed) if is_packed else 0, 0, 0, 9),
        *(sm, 0, 0, 0x11 | flags, 0, size if is_packed else 0),
    )
    return header + padded


def container(*entries: bytes, size: int | None = None, version: int = 1) -> bytes:
    """A container of `entries`; `size` lies about how long it is."""
    body = b"".join(entries)
    length = len(body) if size is None else size
    return struct.pack("<IHHQ", 0xBA55ED50, version, 16, length) + body
