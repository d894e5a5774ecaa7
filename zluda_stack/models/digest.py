"""SHA-256 of files and of what is copied from them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO, Protocol

from zluda_stack.progress import Progress

_CHUNK = 1 << 20


class Readable(Protocol):
    """Something that bytes come from."""

    def read(self, count: int, /) -> bytes:
        """At most `count` bytes; none at the end."""


def sha256_of(path: Path, progress: Progress) -> str:
    """The SHA-256 of the file at `path` in hex, with its bytes reported. Raises OSError."""
    with path.open("rb") as source:
        return _pass_through(source, None, path.stat().st_size, progress)


def copy_with_sha256(source: Readable, target: Path, size: int, progress: Progress) -> str:
    """Copy `source` to the new file `target`; the SHA-256 of what was written, in hex.

    At most one byte more than `size` is copied, so that a source that is longer than it says
    cannot fill the disk. The file is on the disk when this returns. Raises OSError.
    """
    import os

    with target.open("xb") as sink:
        digest = _pass_through(source, sink, size, progress)
        sink.flush()
        os.fsync(sink.fileno())
    return digest


def _pass_through(source: Readable, sink: IO[bytes] | None, size: int, progress: Progress) -> str:
    digest = hashlib.sha256()
    done = 0
    while done <= size:
        chunk = source.read(min(_CHUNK, size + 1 - done))
        if not chunk:
            break
        digest.update(chunk)
        if sink is not None:
            sink.write(chunk)
        done += len(chunk)
        progress.bytes(done, size)
    return digest.hexdigest()
