"""What lies in the store and nobody needs."""

from __future__ import annotations

import shutil
from pathlib import Path

from msgspec import Struct

from zluda_stack.files import children
from zluda_stack.locks import held, locked, locked_if_free
from zluda_stack.models.growth import pulled_bytes
from zluda_stack.models.layout import Layout, blob_name, is_name, size_of


class Garbage(Struct, frozen=True, kw_only=True):
    """A file or folder that can go, its size in bytes, and why."""

    path: str
    bytes: int
    reason: str


def find_garbage(at: Layout) -> tuple[Garbage, ...]:
    """What `collect` would remove now. Raises OSError when the store may not be read."""
    dead = [folder for folder in _pulls(at) if not held(at.lock_file(folder.name))]
    return (*_unneeded(at), *map(_left, dead))


def collect(at: Layout) -> tuple[Garbage, ...]:
    """Remove what no model needs and what no running pull holds, and tell what it was.

    Raises OSError, HostProblem when the store may not be read or written.
    """
    with locked(at.names_lock, lambda: None):
        removed = list(_unneeded(at))
        for one in removed:
            delete(Path(one.path))
    for folder in _pulls(at):
        with locked_if_free(at.lock_file(folder.name)) as free:
            if free:
                removed.append(_left(folder))
                delete(folder)
    return tuple(removed)


def unnamed_files(at: Layout, *, without: str | None = None) -> tuple[Path, ...]:
    """Blobs that no record but that of `without` names, and damaged files none needs."""
    named = {
        blob_name(file.sha256)
        for name, record in at.records().items()
        if name != without
        for file in record.files
    }
    blobs = tuple(at.blobs.glob("*"))
    healed = {blob.name for blob in blobs} & named
    return tuple(
        [blob for blob in blobs if blob.name not in named]
        + [
            damaged
            for damaged in at.damaged_files.glob("*")
            if damaged.name in healed or damaged.name not in named
        ]
    )


def delete(path: Path) -> None:
    """Remove the file or folder."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _unneeded(at: Layout) -> tuple[Garbage, ...]:
    blobs = (
        Garbage(path=str(path), bytes=size_of(path) or 0, reason="no model needs it")
        for path in unnamed_files(at)
    )
    folders = (
        # Its files are names of blobs, which are counted where they lie.
        Garbage(path=str(folder), bytes=0, reason="its model is gone")
        for folder in children(at.parts_folders)
        if not is_name(folder.name) or at.record(folder.name) is None
    )
    return (*blobs, *folders)


def _pulls(at: Layout) -> list[Path]:
    return [folder for folder in children(at.pulls) if is_name(folder.name)]


def _left(folder: Path) -> Garbage:
    return Garbage(path=str(folder), bytes=pulled_bytes(folder), reason="a stopped pull left it")
