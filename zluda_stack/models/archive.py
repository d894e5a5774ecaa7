"""Models in a tar stream: their records first, then their files by their hashes.

manifest.json          the records, by the models' names
blobs/sha256-<hex>     every file once
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Annotated

import msgspec
from msgspec import Meta, Struct

from zluda_stack import tar
from zluda_stack.errors import HostProblem
from zluda_stack.models.digest import pass_through
from zluda_stack.models.layout import Record, StoredFile, blob_name
from zluda_stack.models.store import Store
from zluda_stack.progress import Part, Progress

_MANIFEST = "manifest.json"
_BLOB = re.compile(r"blobs/sha256-([0-9a-f]{64})")
_CHUNK = 1 << 20
_LONGEST_MANIFEST = 16 << 20
_ModelName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}\Z")]


class Manifest(Struct, frozen=True, kw_only=True):
    """What is in an archive."""

    schema: Annotated[int, Meta(ge=1, le=1)] = 1
    models: Annotated[dict[_ModelName, Record], Meta(min_length=1, max_length=1000)]


def write_archive(store: Store, names: Sequence[str], sink: IO[bytes], progress: Progress) -> None:
    """Write the models `names` to `sink`, which may be a pipe.

    Every file is hashed on its way. Raises UsageError, HostProblem for a model that is not here
    or not whole, OSError.
    """
    files = {file.sha256: (file, path) for name in names for file, path in store.files(name)}
    records = {name: record for name in names if (record := store.record(name)) is not None}
    manifest = msgspec.json.encode(Manifest(models=records))
    size = len(manifest)
    sink.write(tar.header(_MANIFEST, size) + manifest + tar.padding(size))
    total, before = sum(file.size for file, _ in files.values()), 0
    progress.step(f"writing {', '.join(names)}")
    for file, path in files.values():
        _write_file(file, path, sink, Part(progress, before, total))
        before += file.size
    sink.write(tar.END)


def read_archive(store: Store, source: IO[bytes], progress: Progress) -> list[tuple[str, Path]]:
    """Take the models in `source`, which may be a pipe; their names and what serves them.

    A model is in the store when all its files came and had their hashes. Raises HostProblem for
    anything that `write_archive` does not write, UsageError for a name that is taken, OSError.
    """
    members = _members(source)
    records = _manifest(members)
    with store.receiving(records) as receiving:
        total, before = sum(record.size for record in records.values()), 0
        progress.step(f"reading {', '.join(records)}")
        for name, body in members:
            file = _known(name, body.left, receiving.file)
            if receiving.lacks(file.sha256):
                receiving.take(file.sha256, body, Part(progress, before, total))
            before += file.size
        return list(receiving.admit())


class _Body:
    """The content of one member, and no byte of the next."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream = stream
        self.left = size
        self.padding = len(tar.padding(size))

    def read(self, count: int, /) -> bytes:
        """At most `count` bytes; fewer at the end. Raises HostProblem when the stream ends."""
        data = _exactly(self._stream, min(count, self.left))
        self.left -= len(data)
        return data


def _members(stream: IO[bytes]) -> Iterator[tuple[str, _Body]]:
    """The names and bodies of the members; what a caller leaves of a body is passed over."""
    try:
        while (info := tar.next_header(partial(_exactly, stream))) is not None:
            body = _Body(stream, info.size)
            yield info.name, body
            while body.read(_CHUNK):
                pass
            _exactly(stream, body.padding)
    except tar.BadTar as error:
        raise _refused(str(error)) from error


def _manifest(members: Iterator[tuple[str, _Body]]) -> dict[str, Record]:
    name, body = next(members, ("", None))
    if body is None or name != _MANIFEST or body.left > _LONGEST_MANIFEST:
        raise _refused(f"it does not begin with a {_MANIFEST}")
    try:
        return msgspec.json.decode(body.read(_LONGEST_MANIFEST), type=Manifest).models
    except msgspec.DecodeError as error:
        raise _refused(f"its {_MANIFEST} is wrong: {error}") from error


def _known(name: str, size: int, find: Callable[[str], StoredFile | None]) -> StoredFile:
    """The file of a record that the member `name` is."""
    match = _BLOB.fullmatch(name)
    file = find(match[1]) if match else None
    if file is None:
        raise _refused(f"{name!r} belongs to no model in it")
    if file.size != size:
        raise _refused(f"{name!r} has {size} bytes, and its record names {file.size}")
    return file


def _write_file(file: StoredFile, path: Path, sink: IO[bytes], progress: Progress) -> None:
    sink.write(tar.header(f"blobs/{blob_name(file.sha256)}", file.size))
    with path.open("rb") as source:
        _, digest = pass_through(source, sink, file.size, progress)
    if digest != file.sha256:
        raise HostProblem(
            f"{path} is damaged: expected sha256 {file.sha256}, got {digest}",
            "`zluda-stack models verify` tells which models need it, and a pull heals them.",
        )
    sink.write(tar.padding(file.size))


def _exactly(stream: IO[bytes], count: int) -> bytes:
    """`count` bytes, which a pipe may bring in several pieces."""
    pieces = []
    while count:
        piece = stream.read(count)
        if not piece:
            raise _refused("it ends in the middle")
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _refused(why: str) -> HostProblem:
    return HostProblem(
        f"this is no sound archive of models: {why}",
        "`zluda-stack models export` writes one. What was whole before that is kept.",
    )
