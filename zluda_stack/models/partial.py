"""A file that is being downloaded, and what is needed to go on with it after a stop."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec
from msgspec import Struct

from zluda_stack.files import write_atomic
from zluda_stack.models.layout import blob_name, size_of
from zluda_stack.progress import Progress

_CHUNK = 1 << 20


class Origin(Struct, frozen=True, kw_only=True):
    """What the bytes so far are of: `key` is the hash or the URL that was asked for.

    `validator` is the ETag (or the date) under which the server gave them, `total` the size that
    it named.
    """

    key: str
    validator: str | None = None
    total: int | None = None


class Partial:
    """The file FOLDER/NAME.part; it is hashed while it is written.

    What an earlier process wrote is used when it belongs to the same `key`. `joined` is True
    when the bytes came in more than one answer. Raises OSError.
    """

    def __init__(self, folder: Path, name: str, key: str, progress: Progress) -> None:
        self._path = folder / f"{name}.part"
        self._origin_file = folder / f"{name}.part.json"
        self._digest = hashlib.sha256()
        self.origin = self._read_origin() or Origin(key=key)
        self.length = 0
        self.joined = False
        self._handle = self._path.open("r+b" if self._path.exists() else "x+b")
        if self.origin.key != key:
            self.origin = Origin(key=key)
            self.restart()
        self._hash_what_is_there(progress)

    def __enter__(self) -> Partial:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file; what it has stays."""
        self._handle.close()

    def know(self, validator: str | None, total: int | None) -> None:
        """Remember, on the disk too, under which names the server gives these bytes."""
        origin = Origin(key=self.origin.key, validator=validator, total=total)
        if origin != self.origin:
            self.origin = origin
            write_atomic(self._origin_file, msgspec.json.encode(origin))

    def write(self, chunk: bytes) -> None:
        """Append `chunk`."""
        self._handle.write(chunk)
        self._digest.update(chunk)
        self.length += len(chunk)

    def restart(self) -> None:
        """Forget all bytes."""
        self._handle.seek(0)
        self._handle.truncate()
        self._digest = hashlib.sha256()
        self.length = 0
        self.joined = False
        self.origin = Origin(key=self.origin.key)
        self._origin_file.unlink(missing_ok=True)

    def digest(self) -> str:
        """The SHA-256 of the bytes so far, in hex."""
        return self._digest.hexdigest()

    def finish(self) -> Path:
        """Put the whole file on the disk under the name of its content, and return its path."""
        self._handle.flush()
        os.fsync(self._handle.fileno())
        self._origin_file.unlink(missing_ok=True)
        return self._path.replace(self._path.with_name(blob_name(self.digest())))

    def discard(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
        self._origin_file.unlink(missing_ok=True)

    @property
    def path(self) -> Path:
        """Where the bytes so far are; they are all there after this call."""
        self._handle.flush()
        return self._path

    def _read_origin(self) -> Origin | None:
        try:
            return msgspec.json.decode(self._origin_file.read_bytes(), type=Origin)
        except (OSError, msgspec.DecodeError):
            return None

    def _hash_what_is_there(self, progress: Progress) -> None:
        size = size_of(self._path) or 0
        if size:
            progress.step("checking what an earlier pull has left")
        while chunk := self._handle.read(_CHUNK):
            self._digest.update(chunk)
            self.length += len(chunk)
            progress.bytes(self.length, size)
        self.joined = self.length > 0


def partial_size(folder: Path, name: str) -> int:
    """How many bytes of the file `name` an earlier download left in `folder`."""
    return size_of(folder / f"{name}.part") or 0
