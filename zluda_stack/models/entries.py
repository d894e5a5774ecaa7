"""What the store has, as lists show it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from msgspec import Struct

from zluda_stack.files import children
from zluda_stack.locks import held
from zluda_stack.models.growth import pulled_bytes
from zluda_stack.models.layout import Layout, Record, StoredFile, is_name, size_of


class EntryState(str, Enum):
    """What a model in the store is good for; only READY can be served."""

    READY = "ready"
    PULLING = "pulling"
    INCOMPLETE = "incomplete"
    DAMAGED = "damaged"


class Entry(Struct, frozen=True, kw_only=True):
    """One model in the store; `bytes` are there now, those of `record` are of the whole model.

    `path` is what llama.cpp is given: the one file, or the first of several. `record` and `path`
    are None for a pull that never was complete.
    """

    name: str
    state: EntryState
    bytes: int
    path: str | None = None
    record: Record | None = None

    @property
    def sha256(self) -> str | None:
        """The hash of a model that is a single file, else None."""
        files = () if self.record is None else self.record.files
        return files[0].sha256 if len(files) == 1 else None

    @property
    def source(self) -> str | None:
        """Where the model came from, in one line."""
        return None if self.record is None else self.record.source


def find_entries(at: Layout) -> tuple[Entry, ...]:
    """Every model that is in the store, whole or not, by name.

    Raises OSError when the store may not be read.
    """
    names = {path.stem for path in children(at.names) if path.suffix == ".json"}
    names |= {path.name for path in children(at.pulls)}
    found = (_entry(at, name) for name in sorted(names) if is_name(name))
    return tuple(entry for entry in found if entry is not None)


def _entry(at: Layout, name: str) -> Entry | None:
    record = at.record(name)
    if record is not None:
        if at.is_whole(name, record):
            return _recorded(at, name, EntryState.READY, record)
        if any(_remains(at, file) is not None for file in record.files):
            return _recorded(at, name, EntryState.DAMAGED, record)
    folder = at.pull_folder(name)
    if not folder.is_dir():
        return None
    running = held(at.lock_file(name))
    state = EntryState.PULLING if running else EntryState.INCOMPLETE
    return Entry(name=name, state=state, bytes=pulled_bytes(folder))


def _recorded(at: Layout, name: str, state: EntryState, record: Record) -> Entry:
    remains = [path for file in record.files if (path := _remains(at, file)) is not None]
    ready = at.served_file(name, record)
    return Entry(
        name=name,
        state=state,
        bytes=sum(size_of(path) or 0 for path in remains),
        path=str(ready if state is EntryState.READY else remains[0]),
        record=record,
    )


def _remains(at: Layout, file: StoredFile) -> Path | None:
    """The file, whole or damaged; None when nothing of it is there."""
    paths = (at.blob(file.sha256), at.damaged(file.sha256))
    return next((path for path in paths if path.exists()), None)
