"""What the YAML of the catalogue said when it was parsed last, so that not every start parses it.

Parsing, with the import of its package, takes a fifth of what `plan` takes. What is kept cannot be
out of date: it stands beside the very bytes that it came from and the parser's own code, and counts
for nothing where either is another now. It is plain data, and is checked against the schema as if
it had just been parsed.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from zluda_stack.errors import HostProblem
from zluda_stack.files import write_atomic

_PARSER = Path(__file__).with_name("plain_yaml.py")


class _Kept(Struct, frozen=True):
    parser: bytes
    files: dict[str, bytes]
    said: dict[str, object]


def recall(path: Path, files: dict[str, bytes]) -> dict[str, object] | None:
    """What the file at `path` keeps of what `files` say, by name; None when it came from others."""
    try:
        kept = msgspec.msgpack.decode(path.read_bytes(), type=_Kept)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return kept.said if (kept.parser, kept.files) == (_PARSER.read_bytes(), files) else None


def keep(path: Path, files: dict[str, bytes], said: dict[str, object]) -> None:
    """Keep at `path` what `files` say, for `recall`. Where that cannot be, nothing is kept."""
    with suppress(HostProblem, OverflowError):
        write_atomic(path, msgspec.msgpack.encode(_Kept(_PARSER.read_bytes(), files, said)))
