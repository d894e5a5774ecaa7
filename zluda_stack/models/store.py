"""The model store: whole files under the name of their content, and small records beside them.

    blobs/sha256-<hex>     a whole file
    damaged/sha256-<hex>   a file that `verify` found changed
    names/<model>.json     which blob a model is
    pulls/<model>/         what a running pull has so far, or what a killed one left
    locks/<model>          held by whoever pulls, checks or removes that model

A file gets its name under blobs/ by a rename, after its hash was checked and its record written;
so a name there never stands for half a file, whenever a pull is killed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path

import msgspec
from msgspec import Struct

from zluda_stack.catalog.schema import Model, Sha256
from zluda_stack.errors import HostProblem, Interrupted, UsageError
from zluda_stack.files import children, write_atomic
from zluda_stack.locks import held, locked, locked_if_free
from zluda_stack.models.digest import sha256_of
from zluda_stack.models.growth import largest_file
from zluda_stack.models.source import Fetched, source_of
from zluda_stack.progress import Progress
from zluda_stack.units import megabytes

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_READ_ONLY = 0o444
# No model has this name: it begins with a dot.
_ALL_NAMES = ".names"


class EntryState(str, Enum):
    """What a model in the store is good for; only READY can be served."""

    READY = "ready"
    PULLING = "pulling"
    INCOMPLETE = "incomplete"
    DAMAGED = "damaged"


class Entry(Struct, frozen=True, kw_only=True):
    """One model in the store; `bytes` are there now, the rest is of the whole file."""

    name: str
    state: EntryState
    bytes: int
    sha256: str | None = None
    source: str | None = None
    path: str | None = None


class Check(Struct, frozen=True, kw_only=True):
    """What re-hashing a model found; `found` is None when there was nothing to hash."""

    name: str
    whole: bool
    expected: str
    found: str | None


class _Record(Struct, frozen=True, kw_only=True):
    sha256: Sha256
    size: int
    source: str


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


class Store:
    """The store in the folder `root`; `free_bytes` says how much room a folder's disk has."""

    def __init__(self, root: Path, *, free_bytes: Callable[[Path], int] = _free_bytes) -> None:
        self._root = root
        self._free_bytes = free_bytes

    def get(self, model: Model) -> Path | None:
        """The whole file of `model`, or None when the store does not have it."""
        record = self._record(model.name)
        if record is None or model.sha256 not in {None, record.sha256}:
            return None
        blob = self._blob(record)
        return blob if _size(blob) == record.size else None

    def ensure(self, model: Model, progress: Progress) -> Path:
        """The whole file of `model`, fetched now when it is not there.

        A second caller waits for the first and takes what it fetched. Raises HostProblem (no
        network, no space, wrong content), PlanRefused (nowhere to fetch it from), Interrupted.
        """
        ready = self.get(model)
        if ready is not None:
            return ready
        try:
            with self._lock(model.name, self._watch_other_pull(model, progress)) as lock:
                return self.get(model) or self._pull(model, progress, lock)
        except KeyboardInterrupt:
            raise Interrupted(
                f"the pull of {model.name} was interrupted and nothing of it was kept",
                f"`zluda-stack models pull {model.name}` starts it again.",
            ) from None
        except OSError as error:
            raise HostProblem(
                f"cannot pull {model.name} into {self._root}: {error.strerror or error}",
                "Check the folder's owner and free space.",
            ) from error

    def pull_commands(self, model: Model) -> tuple[tuple[str, ...], ...]:
        """The commands that `ensure` would run: none when the model is there."""
        if self.get(model) is not None:
            return ()
        return source_of(model).commands(self._pull_folder(model.name))

    def entries(self) -> tuple[Entry, ...]:
        """Every model that is in the store, whole or not, by name.

        Raises OSError when the store may not be read.
        """
        names = {path.stem for path in children(self._root / "names") if path.suffix == ".json"}
        names |= {path.name for path in children(self._root / "pulls")}
        found = (self._entry(name) for name in sorted(names) if _NAME.fullmatch(name))
        return tuple(entry for entry in found if entry is not None)

    def verify(self, name: str, progress: Progress) -> Check:
        """Hash the model `name` again; a file that changed is no longer offered as ready.

        Raises UsageError when the store has no such model, HostProblem when it cannot be read.
        """
        with self._lock(name, _busy(name)):
            record = self._record(name)
            if record is None:
                raise _not_here(name)
            progress.step(f"checking {name}")
            blob = self._blob(record)
            try:
                found = sha256_of(blob, progress) if blob.exists() else None
                if found is not None and found != record.sha256:
                    self._damaged(record).parent.mkdir(exist_ok=True)
                    blob.replace(self._damaged(record))
            except OSError as error:
                raise HostProblem(
                    f"cannot check {blob}: {error.strerror}", "Check the disk and the file's owner."
                ) from error
            whole = found == record.sha256
            return Check(name=name, whole=whole, expected=record.sha256, found=found)

    def remove(self, name: str) -> None:
        """Remove the model `name`, whole or not, and what no other name needs any more.

        Raises UsageError when the store has no such model, HostProblem while it is being pulled.
        """
        with self._lock(name, _busy(name)), self._lock_names():
            for path in self.removal(name):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def removal(self, name: str) -> tuple[Path, ...]:
        """The files and folders that `remove` deletes. Raises UsageError when there is none."""
        own = [self._record_file(name), self._pull_folder(name)]
        paths = tuple(path for path in own if path.exists())
        if not paths:
            raise _not_here(name)
        return paths + self._unnamed_files(without=name)

    def _pull(self, model: Model, progress: Progress, lock: int) -> Path:
        source = source_of(model)
        self._clear_dead_pulls()
        folder = self._pull_folder(model.name)
        shutil.rmtree(folder, ignore_errors=True)
        self._require_room(model.name, source.space_needed())
        try:
            folder.mkdir(parents=True)
            return self._admit(model.name, source.fetch(folder, progress, lock), source.describe())
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _admit(self, name: str, fetched: Fetched, source: str) -> Path:
        record = _Record(sha256=fetched.sha256, size=fetched.size, source=source)
        blob = self._blob(record)
        blob.parent.mkdir(exist_ok=True)
        fetched.path.chmod(_READ_ONLY)
        with self._lock_names():
            write_atomic(self._record_file(name), msgspec.json.encode(record))
            fetched.path.replace(blob)
            for path in self._unnamed_files():
                path.unlink(missing_ok=True)
        return blob

    def _unnamed_files(self, *, without: str | None = None) -> tuple[Path, ...]:
        """Blobs that no record but that of `without` names, and damaged files none needs."""
        names = {path.stem for path in self._root.glob("names/*.json")} - {without}
        records = [self._record(name) for name in names]
        named = {self._blob(record).name for record in records if record is not None}
        blobs = tuple(self._root.glob("blobs/*"))
        healed = {blob.name for blob in blobs} & named
        return tuple(
            [blob for blob in blobs if blob.name not in named]
            + [
                damaged
                for damaged in self._root.glob("damaged/*")
                if damaged.name in healed or damaged.name not in named
            ]
        )

    def _clear_dead_pulls(self) -> None:
        for folder in self._root.glob("pulls/*"):
            with locked_if_free(self._lock_file(folder.name)) as free:
                if free:
                    shutil.rmtree(folder, ignore_errors=True)

    def _require_room(self, name: str, needed: int) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        free = self._free_bytes(self._root)
        if free < needed:
            raise HostProblem(
                f"fetching {name} takes {megabytes(needed)} of disk space for a while, and only "
                f"{megabytes(free)} are free in {self._root}",
                "Free some space (`zluda-stack models list` shows what models take), or put the "
                "store on another disk by setting XDG_DATA_HOME.",
            )

    def _entry(self, name: str) -> Entry | None:
        record = self._record(name)
        if record is not None:
            blob, damaged = self._blob(record), self._damaged(record)
            size = _size(blob)
            if size == record.size:
                return _recorded(name, EntryState.READY, record, blob, size)
            for path in (blob, damaged):
                if path.exists():
                    return _recorded(name, EntryState.DAMAGED, record, path, _size(path) or 0)
        folder = self._pull_folder(name)
        if not folder.is_dir():
            return None
        running = held(self._lock_file(name))
        state = EntryState.PULLING if running else EntryState.INCOMPLETE
        return Entry(name=name, state=state, bytes=largest_file(folder))

    def _watch_other_pull(self, model: Model, progress: Progress) -> Callable[[], None]:
        steps: Iterator[str] = iter([f"waiting for another pull of {model.name}"])

        def watch() -> None:
            for step in steps:
                progress.step(step)
            progress.bytes(largest_file(self._pull_folder(model.name)), model.size)

        return watch

    def _lock(self, name: str, while_waiting: Callable[[], None]) -> AbstractContextManager[int]:
        return locked(self._lock_file(_checked(name)), while_waiting)

    def _lock_names(self) -> AbstractContextManager[int]:
        """Held for the moment in which records and blobs change, which names can share."""
        return locked(self._lock_file(_ALL_NAMES), lambda: None)

    def _record(self, name: str) -> _Record | None:
        try:
            return msgspec.json.decode(self._record_file(name).read_bytes(), type=_Record)
        except (OSError, msgspec.DecodeError):
            return None

    def _record_file(self, name: str) -> Path:
        return self._root / "names" / f"{_checked(name)}.json"

    def _pull_folder(self, name: str) -> Path:
        return self._root / "pulls" / _checked(name)

    def _lock_file(self, name: str) -> Path:
        return self._root / "locks" / name

    def _blob(self, record: _Record) -> Path:
        return self._root / "blobs" / f"sha256-{record.sha256}"

    def _damaged(self, record: _Record) -> Path:
        return self._root / "damaged" / f"sha256-{record.sha256}"


def _recorded(name: str, state: EntryState, record: _Record, path: Path, size: int) -> Entry:
    return Entry(
        name=name,
        state=state,
        bytes=size,
        sha256=record.sha256,
        source=record.source,
        path=str(path),
    )


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a model", "`zluda-stack models list` shows the names."
        )
    return name


def _not_here(name: str) -> UsageError:
    return UsageError(
        f"the store has no model {name}", "`zluda-stack models list` shows what it has."
    )


def _busy(name: str) -> Callable[[], None]:
    def refuse() -> None:
        raise HostProblem(
            f"{name} is being pulled or checked by another process",
            "Wait for it to end, or stop it.",
        )

    return refuse


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
