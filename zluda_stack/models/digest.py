"""SHA-256 of files and of what is copied from them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO, Protocol

from zluda_stack.errors import HostProblem
from zluda_stack.progress import Progress

_CHUNK = 1 << 20


class Readable(Protocol):
    """Something that bytes come from."""

    def read(self, count: int, /) -> bytes:
        """At most `count` bytes; none at the end."""


def sha256_of(path: Path, progress: Progress) -> str:
    """The SHA-256 of the file at `path` in hex, with its bytes reported. Raises OSError."""
    with path.open("rb") as source:
        return pass_through(source, None, path.stat().st_size, progress)[1]


def copy_with_sha256(source: Readable, target: Path, size: int, progress: Progress) -> str:
    """Copy `source` to the new file `target`; the SHA-256 of what was written, in hex.

    At most one byte more than `size` is copied, so that a source that is longer than it says
    cannot fill the disk. The file is on the disk when this returns. Raises OSError.
    """
    import os

    with target.open("xb") as sink:
        _, digest = pass_through(source, sink, size, progress)
        sink.flush()
        os.fsync(sink.fileno())
    return digest


def copy_checked(
    source: Readable, target: Path, sha256: str, size: int, progress: Progress, *, named: str
) -> Path:
    """Copy `source` to `target`, which is there only when it has the hash `sha256`.

    `named` is what people know the source as. Raises HostProblem with both hashes, OSError.
    """
    half = target.with_name(f"{target.name}.copy")
    half.unlink(missing_ok=True)
    try:
        found = copy_with_sha256(source, half, size, progress)
        if found != sha256:
            raise HostProblem(
                f"{named} is damaged: expected sha256 {sha256}, got {found}",
                "It was not taken. What was copied before it is kept.",
            )
        return half.replace(target)
    finally:
        half.unlink(missing_ok=True)


def pass_through(
    source: Readable, sink: IO[bytes] | None, size: int | None, progress: Progress
) -> tuple[int, str]:
    """Read `source`, and write it to `sink` if there is one; the bytes read and their SHA-256.

    Of a source with a `size` at most one byte more is read. Raises OSError.
    """
    digest = hashlib.sha256()
    done = 0
    while size is None or done <= size:
        chunk = source.read(_CHUNK if size is None else min(_CHUNK, size + 1 - done))
        if not chunk:
            break
        digest.update(chunk)
        if sink is not None:
            sink.write(chunk)
        done += len(chunk)
        progress.bytes(done, size)
    return done, digest.hexdigest()
