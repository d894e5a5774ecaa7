"""Tar archives of plain files, a header at a time.

Not by tarfile.TarFile: what is read was made by others, and that knows links, devices and sparse
files, and reads into memory whatever a header claims.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable

BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)
_LONGEST_NAME = 4096
_PLAIN = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE})


class BadTar(ValueError):
    """What is read is no archive of plain files; the text says why."""


def header(name: str, size: int, seconds: int = 0) -> bytes:
    """The header of a plain file of `size` bytes, changed `seconds` after the epoch.

    In GNU's form: sizes above 8 GiB fit into it, so that its own length follows from the name.
    """
    member = tarfile.TarInfo(name)
    member.size, member.mtime = size, seconds
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict")


def padding(size: int) -> bytes:
    """What comes after a file of `size` bytes, up to the next header."""
    return bytes(-size % BLOCK)


def next_header(read: Callable[[int], bytes]) -> tarfile.TarInfo | None:
    """The next header, of a plain file; None at the end of the archive.

    `read` gives as many bytes as it is asked for, and fewer at the end of the file. Raises BadTar.
    """
    found = _header(read)
    if found is not None and found.type == tarfile.GNUTYPE_LONGNAME:
        if found.size > _LONGEST_NAME:
            raise BadTar("a name in it is too long")
        name = read(found.size).rstrip(b"\0").decode(errors="replace")
        read(len(padding(found.size)))
        found = _header(read)
        if found is not None:
            found.name = name
    if found is not None and found.type not in _PLAIN:
        raise BadTar(f"{found.name!r} in it is no plain file")
    return found


def _header(read: Callable[[int], bytes]) -> tarfile.TarInfo | None:
    block = read(BLOCK)
    if block in {b"", bytes(BLOCK)}:
        return None
    try:
        found = tarfile.TarInfo.frombuf(block, "utf-8", "replace")
    except tarfile.HeaderError as error:
        raise BadTar(f"it is no tar archive, or damaged ({error})") from error
    if found.size < 0:
        raise BadTar(f"{found.name!r} in it has no size")
    return found
