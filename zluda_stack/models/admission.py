"""How whole files become a model of the store."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from zluda_stack.catalog.schema import ModelFile
from zluda_stack.errors import HostProblem
from zluda_stack.locks import locked
from zluda_stack.models.garbage import unnamed_files
from zluda_stack.models.layout import Layout, Record, blob_name, size_of, stored_file
from zluda_stack.models.source import Fetched, Offer

_READ_ONLY = 0o444


def have(at: Layout, file: ModelFile, folder: Path) -> Fetched | None:
    """The file as a pull before this one has left it in `folder`, or as another model has it."""
    if file.sha256 is None:
        return None
    for path in (folder / blob_name(file.sha256), at.blob(file.sha256)):
        size = size_of(path)
        if size is not None and file.size in {None, size}:
            return Fetched(path=path, sha256=file.sha256, size=size)
    return None


def admit(at: Layout, name: str, offer: Offer, fetched: tuple[Fetched, ...]) -> Path:
    """Make the checked files `fetched` the model `name`; what llama.cpp is given to serve it.

    The caller holds the model's lock. Raises HostProblem, OSError.
    """
    pairs = zip(offer.files, fetched, strict=True)
    record = Record(
        files=tuple(stored_file(file, found.sha256, found.size) for file, found in pairs),
        source=offer.source,
        hub=offer.hub,
        https=offer.https,
    )
    at.blobs.mkdir(parents=True, exist_ok=True)
    with locked(at.names_lock, lambda: None):
        for found in fetched:
            _move_in(at, found)
        _link_parts(at, name, record)
        at.write_record(name, record)
        for path in unnamed_files(at):
            path.unlink(missing_ok=True)
    shutil.rmtree(at.pull_folder(name), ignore_errors=True)
    return at.served_file(name, record)


def _move_in(at: Layout, found: Fetched) -> None:
    blob = at.blob(found.sha256)
    if found.path == blob:
        if size_of(blob) != found.size:
            raise HostProblem(
                f"{blob} was removed by another process in the meantime", "Pull the model again."
            )
        return
    if found.path.stat().st_nlink == 1:  # else it is the user's file, under another name here
        found.path.chmod(_READ_ONLY)
    found.path.replace(blob)


def _link_parts(at: Layout, name: str, record: Record) -> None:
    """Give the files of a split model their own names; a model of one file needs no folder."""
    folder = at.parts(name)
    shutil.rmtree(folder, ignore_errors=True)
    if len(record.files) == 1:
        return
    folder.mkdir(parents=True)
    for file in record.files:
        os.link(at.blob(file.sha256), folder / file.name)
