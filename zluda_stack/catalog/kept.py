"""What the YAML of the catalogue said when it was parsed last, so that not every start parses it.

Parsing, with the import of its package, takes a fifth of what `plan` takes. What is kept cannot be
out of date: it stands beside the very bytes that it came from and the parser's own code, and counts
for nothing where either is another now. Nor can it be another's: it counts only as it was written,
in a file of this user's that nobody else may write. It is plain data, and is checked against the
schema as if it had just been parsed.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from zluda_stack.errors import HostProblem
from zluda_stack.files import write_atomic

_PARSER = Path(__file__).with_name("plain_yaml.py")
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
# Older than any that is still being written, in seconds.
_ABANDONED = 3600


class _Kept(Struct, frozen=True):
    parser: bytes
    files: dict[str, bytes]
    said: dict[str, object]


def recall(path: Path, files: dict[str, bytes]) -> dict[str, object] | None:
    """What the file at `path` keeps of what `files` say, by name; None when it came from others."""
    try:
        raw = _own(path)
        size = hashlib.sha256().digest_size
        if raw is None or hashlib.sha256(raw[size:]).digest() != raw[:size]:
            return None
        kept = msgspec.msgpack.decode(raw[size:], type=_Kept)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return kept.said if (kept.parser, kept.files) == (_PARSER.read_bytes(), files) else None


def keep(path: Path, files: dict[str, bytes], said: dict[str, object]) -> None:
    """Keep at `path` what `files` say, for `recall`. Where that cannot be, nothing is kept."""
    with suppress(HostProblem, OSError, OverflowError):
        raw = msgspec.msgpack.encode(_Kept(_PARSER.read_bytes(), files, said))
        write_atomic(path, hashlib.sha256(raw).digest() + raw, follow_link=False)
        for temporary in path.parent.glob(f".{path.name}.*"):  # of a process that was killed
            if temporary.lstat().st_mtime < time.time() - _ABANDONED:
                temporary.unlink()


def _own(path: Path) -> bytes | None:
    """What is in the file, unless it is no plain file or one that another user can have written."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as handle:
        found = os.fstat(descriptor)
        theirs = found.st_uid != os.geteuid() or found.st_mode & _OTHERS_MAY_WRITE
        return None if theirs or not stat.S_ISREG(found.st_mode) else handle.read()
