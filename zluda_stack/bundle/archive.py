"""A bundle as a file: a tar archive of plain files, the manifest first.

It is written in one pass over what goes into it. What is known only after a member was written
(its size and hash, where a program pipes it) is filled in afterwards: in the member's own header
and in the manifest, for which room is left.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from msgspec import Struct, structs

from zluda_stack import tar
from zluda_stack.bundle import manifest as manifests
from zluda_stack.bundle.manifest import Kind, Manifest, Member
from zluda_stack.errors import HostProblem
from zluda_stack.models.digest import pass_through
from zluda_stack.progress import Part, Progress

_UNKNOWN = "0" * 64
# More than any size has digits: what the manifest may grow by for each member.
_GROWTH = 24


class Ingredient(Struct, frozen=True, kw_only=True):
    """One member to write: where its bytes come from, and what is known of them before.

    `about` is the size in bytes to expect where `size` is None.
    """

    path: str
    kind: Kind
    open: Callable[[], AbstractContextManager[IO[bytes]]]
    size: int | None = None
    sha256: str | None = None
    about: int = 0


def write(
    out: Path, manifest: Manifest, ingredients: Sequence[Ingredient], progress: Progress
) -> Manifest:
    """Write the bundle `out`, whole or not at all; the manifest as it was written.

    Raises HostProblem when `out` cannot be written, and when an ingredient is not what it was
    said to be.
    """
    temporary: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(dir=out.absolute().parent, prefix=f".{out.name}.")
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as handle:
            os.fchmod(descriptor, 0o644)
            written = _Writer(handle).write(manifest, ingredients, progress)
            handle.flush()
            os.fsync(descriptor)
        temporary.replace(out)
        temporary = None
    except OSError as error:
        raise _unwritable(out, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return written


class _Writer:
    def __init__(self, handle: IO[bytes]) -> None:
        self._handle = handle
        self._time = int(time.time())

    def write(
        self, manifest: Manifest, ingredients: Sequence[Ingredient], progress: Progress
    ) -> Manifest:
        draft = tuple(
            Member(path=one.path, kind=one.kind, size=one.size or 0, sha256=one.sha256 or _UNKNOWN)
            for one in ingredients
        )
        room = len(manifests.encode(structs.replace(manifest, members=draft)))
        room += _GROWTH * len(draft)
        self._header(manifests.NAME, room)
        self._pad(b" " * room, room)
        total, members = sum(one.size or one.about for one in ingredients), list[Member]()
        for one in ingredients:
            before = sum(member.size for member in members)
            members.append(self._member(one, Part(progress, before, total)))
        self._handle.write(tar.END)
        whole = structs.replace(manifest, members=tuple(members))
        self._handle.seek(tar.BLOCK)
        self._handle.write(manifests.encode(whole).ljust(room))
        return whole

    def _member(self, one: Ingredient, progress: Progress) -> Member:
        start = self._handle.tell()
        self._header(one.path, one.size or 0)
        with one.open() as source:
            size, digest = pass_through(source, self._handle, None, progress)
        if one.sha256 not in {None, digest} or one.size not in {None, size}:
            raise HostProblem(
                f"{one.path} is damaged: expected {one.size} bytes with sha256 {one.sha256}, got "
                f"{size} with {digest}",
                "`zluda-stack models verify` tells which model it is of. Nothing was written.",
            )
        self._pad(b"", size)
        if one.size is None:
            end = self._handle.tell()
            self._handle.seek(start)
            self._header(one.path, size)
            self._handle.seek(end)
        return Member(path=one.path, kind=one.kind, size=size, sha256=digest)

    def _header(self, path: str, size: int) -> None:
        self._handle.write(tar.header(path, size, self._time))

    def _pad(self, data: bytes, size: int) -> None:
        self._handle.write(data + tar.padding(size))


def _unwritable(out: Path, error: OSError) -> HostProblem:
    if error.errno == errno.EFBIG:
        return HostProblem(
            f"the file system of {out} takes no file of this size",
            "FAT takes 4 GB at most. Write it elsewhere, and carry the parts of `split -b 4G`.",
        )
    where = error.filename or out
    return HostProblem(
        f"cannot write the bundle: {where}: {error.strerror or error}",
        "Check the folder's owner and free space. Nothing was left there.",
    )
