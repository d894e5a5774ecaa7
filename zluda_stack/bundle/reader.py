"""A bundle that somebody hands over: nothing in it is trusted before it was compared.

The archive is read by its headers alone, which must be those of plain files, in the order, with
the names and the sizes of the manifest. So a link, a device, a path that leads elsewhere, and a
member that is larger than promised are refused before anything is unpacked.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from zluda_stack import tar
from zluda_stack.bundle import manifest as manifests
from zluda_stack.bundle.manifest import Manifest, Member
from zluda_stack.errors import HostProblem, UsageError
from zluda_stack.models.digest import pass_through
from zluda_stack.progress import Progress

_LONGEST_MANIFEST = 64 << 20
_LONGEST_TEXT = 16 << 20
_CHUNK = 1 << 20


class Bundle:
    """A bundle whose headers and manifest agree; its members were not hashed yet."""

    def __init__(self, path: Path, manifest: Manifest, offsets: dict[str, int]) -> None:
        self.path = path
        self.manifest = manifest
        self._offsets = offsets

    @contextmanager
    def open(self, member: Member) -> Iterator[IO[bytes]]:
        """The bytes of `member`, not checked. Raises HostProblem."""
        try:
            with self.path.open("rb") as handle:
                handle.seek(self._offsets[member.path])
                yield io.BufferedReader(_Region(handle, member.size), _CHUNK)
        except FileNotFoundError as error:
            raise HostProblem(f"{self.path} is gone", "Put it back.") from error

    def require_whole(self, member: Member, progress: Progress) -> None:
        """Return when `member` has the hash of the manifest. Raises HostProblem."""
        with self.open(member) as source:
            _, digest = pass_through(source, None, member.size, progress)
        require_hash(self.path, member, digest)

    def text(self, member: Member) -> str:
        """The text of `member`, checked. Raises HostProblem."""
        if member.size > _LONGEST_TEXT:
            raise _broken(self.path, f"{member.path} is too long for a text")
        with self.open(member) as source:
            raw = source.read()
        require_hash(self.path, member, hashlib.sha256(raw).hexdigest())
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise _broken(self.path, f"{member.path} is no text") from error


def require_hash(path: Path, member: Member, digest: str) -> None:
    """Raises HostProblem when `digest` is not that of the manifest."""
    if digest != member.sha256:
        raise HostProblem(
            f"{member.path} in {path} is damaged: expected sha256 {member.sha256}, got {digest}",
            "It was not taken. Copy the bundle again; what was loaded before stays.",
        )


def open_bundle(path: Path) -> Bundle:
    """The bundle in the file `path`. Raises UsageError for no bundle, HostProblem for a broken."""
    try:
        with path.open("rb") as handle:
            return _read(path, handle)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "Name a bundle.") from error


def _read(path: Path, handle: IO[bytes]) -> Bundle:
    end = handle.seek(0, io.SEEK_END)
    handle.seek(0)
    first = _next_header(path, handle)
    if first is None or first.name != manifests.NAME or first.size > _LONGEST_MANIFEST:
        raise UsageError(
            f"{path} is no bundle: it does not begin with a manifest",
            "`zluda-stack bundle save` writes one.",
        )
    try:
        manifest = manifests.decode(handle.read(first.size))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _broken(path, f"its manifest cannot be read: {error}") from error
    handle.seek(len(tar.padding(first.size)), io.SEEK_CUR)
    offsets = {}
    for member in manifest.members:
        found = _next_header(path, handle)
        _require_same(path, member, found)
        offsets[member.path] = handle.tell()
        if handle.tell() + member.size > end:
            raise _broken(path, f"it is cut off in {member.path}")
        handle.seek(member.size + len(tar.padding(member.size)), io.SEEK_CUR)
    extra = _next_header(path, handle)
    if extra is not None:
        raise _broken(path, f"it holds {extra.name!r}, which its manifest lacks")
    return Bundle(path, manifest, offsets)


def _require_same(path: Path, member: Member, found: tarfile.TarInfo | None) -> None:
    if found is None:
        raise _broken(path, f"it ends before {member.path}")
    if found.name != member.path:
        raise _broken(path, f"it holds {found.name!r} where its manifest has {member.path}")
    if found.size != member.size:
        raise _broken(
            path, f"{member.path} has {found.size} bytes, and {member.size} in its manifest"
        )


def _next_header(path: Path, handle: IO[bytes]) -> tarfile.TarInfo | None:
    try:
        return tar.next_header(handle.read)
    except tar.BadTar as error:
        raise _broken(path, str(error)) from error


def _broken(path: Path, why: str) -> HostProblem:
    return HostProblem(
        f"{path} was not taken: {why}",
        "Nothing of it was used. Copy it again, or save it again.",
    )


class _Region(io.RawIOBase):
    """The next `size` bytes of a file."""

    def __init__(self, handle: IO[bytes], size: int) -> None:
        super().__init__()
        self._handle = handle
        self._left = size

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read into `buffer`; the number of bytes, 0 at the end."""
        raw = self._handle.read(min(len(buffer), self._left))
        buffer[: len(raw)] = raw
        self._left -= len(raw)
        return len(raw)
