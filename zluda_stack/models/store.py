"""The model store: whole files under the name of their content, and small records beside them.

A file gets its name under blobs/ by a rename, after its hash was checked; a record is written
when all files of its model are there. So a record never stands for half a model, whenever a pull
is killed. `layout` tells what is kept where.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct, structs

from zluda_stack.catalog.schema import ModelFile
from zluda_stack.errors import HostProblem, Interrupted, UsageError
from zluda_stack.locks import locked
from zluda_stack.models.admission import admit, have
from zluda_stack.models.digest import sha256_of
from zluda_stack.models.entries import Entry, EntryState, find_entries
from zluda_stack.models.fetching import Fetching
from zluda_stack.models.garbage import (
    Garbage,
    collect,
    delete,
    find_garbage,
    unnamed_files,
)
from zluda_stack.models.growth import pulled_bytes
from zluda_stack.models.layout import (
    Layout,
    Record,
    StoredFile,
    check_file_names,
    is_name,
)
from zluda_stack.models.receiving import Receiving
from zluda_stack.models.source import Fetched, Offer, Source, source_of
from zluda_stack.models.wanted import Described, WantedModel, size_of_all
from zluda_stack.progress import Part, Progress
from zluda_stack.units import megabytes

__all__ = ["Check", "Entry", "EntryState", "Store"]


class Check(Struct, frozen=True, kw_only=True):
    """What re-hashing one file found; `split` when the model has more of them.

    `found` is None when there was nothing to hash.
    """

    name: str
    file: str
    split: bool = False
    whole: bool
    expected: str
    found: str | None


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


class Store:
    """The store in the folder `root`, and how it fetches what it lacks.

    `free_bytes` says how much room a folder's disk has.
    """

    def __init__(
        self,
        root: Path,
        *,
        free_bytes: Callable[[Path], int] = _free_bytes,
        fetching: Fetching | None = None,
    ) -> None:
        self._at = Layout(root)
        self._free_bytes = free_bytes
        self._fetching = fetching or Fetching()

    def get(self, model: WantedModel) -> Path | None:
        """What llama.cpp is given to serve `model`; None when the store lacks some of it."""
        record = self._at.record(model.name)
        return self.find(model.name) if record is not None and record.is_of(model) else None

    def find(self, name: str) -> Path | None:
        """What llama.cpp is given to serve `name`, wherever it came from; None when not whole.

        A split model is its first part, in a folder with the others.
        """
        record = self._at.record(name) if is_name(name) else None
        if record is None or not self._at.is_whole(name, record):
            return None
        return self._at.served_file(name, record)

    def ensure(self, model: WantedModel, progress: Progress, source: Source | None = None) -> Path:
        """What llama.cpp is given to serve `model`, fetched now when it is not there.

        It is fetched from `source`, or from where the model says that it is. A second caller
        waits for the first and takes what it fetched. Raises HostProblem (no network, no space,
        wrong content), PlanRefused (nowhere to fetch it from), Interrupted.
        """
        ready = self._good_enough(model)
        if ready is not None:
            return ready
        try:
            with self._lock(model.name, self._watch_other_pull(model, progress)) as lock:
                return self._good_enough(model) or self._pull(
                    model, source or self._source(model), progress, lock
                )
        except KeyboardInterrupt:
            raise self._interrupted(model.name) from None
        except OSError as error:
            raise HostProblem(
                f"cannot pull {model.name} into {self._at.root}: {error.strerror or error}",
                "Check the folder's owner and free space.",
            ) from error

    def pull_commands(self, model: WantedModel) -> tuple[tuple[str, ...], ...]:
        """The commands that `ensure` would run: none when the model is there."""
        if self._good_enough(model) is not None:
            return ()
        return self._source(model).commands(self._at.pull_folder(model.name))

    def entries(self) -> tuple[Entry, ...]:
        """Every model that is in the store, whole or not, by name.

        Raises OSError when the store may not be read.
        """
        return find_entries(self._at)

    def record(self, name: str) -> Record | None:
        """What the model `name` is; None when the store has no whole or damaged one."""
        return self._at.record(name) if is_name(name) else None

    def pending(self, name: str) -> Described | None:
        """What a stopped pull of the model `name` was to fetch; None when there was none."""
        return self._at.pending(name) if is_name(name) else None

    def files(self, name: str) -> tuple[tuple[StoredFile, Path], ...]:
        """The whole files of the model `name` and where they are, in order.

        Raises UsageError when the store has no such model, HostProblem when it is damaged.
        """
        record = self._at.record(name)
        if record is None:
            raise _not_here(name)
        if not self._at.is_whole(name, record):
            raise HostProblem(
                f"{name} is damaged or incomplete", f"`zluda-stack models pull {name}` heals it."
            )
        return tuple((file, self._at.blob(file.sha256)) for file in record.files)

    @contextmanager
    def receiving(self, records: Mapping[str, Record]) -> Iterator[Receiving]:
        """Takes whole files of models, whose records are known, in any order.

        Raises UsageError for a name that another model has, HostProblem when there is no room or
        one of the models is being pulled.
        """
        with ExitStack() as locks:
            for name in sorted(records):
                locks.enter_context(self._lock(name, _busy(name)))
                self.require_same(name, records[name])
            receiving = Receiving(self._at, records)
            self._require_room(", ".join(records), receiving.bytes_lacking())
            for name, record in records.items():
                if not self._at.is_whole(name, record):
                    self._at.write_pending(recorded(name, record))
            try:
                yield receiving
            finally:
                for name in records:
                    _drop_when_empty(self._at.pull_folder(name))

    def require_same(self, name: str, record: Record) -> None:
        """Raises UsageError when the store has another model under `name`."""
        own = self._at.record(name)
        if own is not None and own.files != record.files:
            raise UsageError(
                f"the store has another {name}, from {own.source}",
                f"`zluda-stack models rm {name}` removes it.",
            )

    def verify(self, name: str, progress: Progress) -> tuple[Check, ...]:
        """Hash the files of `name` again; a model that changed is no longer offered as ready.

        Raises UsageError when the store has no such model, HostProblem when it cannot be read.
        """
        with self._lock(name, _busy(name)):
            record = self._at.record(name)
            if record is None:
                raise _not_here(name)
            split = len(record.files) > 1
            checks = [self._verify_file(name, file, progress) for file in record.files]
            return tuple(structs.replace(check, split=split) for check in checks)

    def remove(self, name: str) -> None:
        """Remove the model `name`, whole or not, and what no other name needs any more.

        Raises UsageError when the store has no such model, HostProblem while it is being pulled.
        """
        with self._lock(name, _busy(name)), self._lock_names():
            for path in self.removal(name):
                delete(path)

    def removal(self, name: str) -> tuple[Path, ...]:
        """The files and folders that `remove` deletes. Raises UsageError when there is none."""
        own = [self._at.record_file(name), self._at.parts(name), self._at.pull_folder(name)]
        paths = tuple(path for path in own if path.exists())
        if not paths:
            raise _not_here(name)
        return paths + unnamed_files(self._at, without=name)

    def _good_enough(self, model: WantedModel) -> Path | None:
        """The model as the store has it, unless its source is to be asked for a newer one."""
        return None if self._fetching.update else self.get(model)

    def _as_seen(self, model: WantedModel) -> WantedModel:
        """`model` with the revision, hashes and sizes that its first pull has seen."""
        if self._fetching.update:
            return model
        record, pending = self._at.record(model.name), self._at.pending(model.name)
        if record is not None and record.is_of(model):
            return _seen(model, record)
        if pending is not None and pending.is_of(model):
            return structs.replace(pending, pypi=model.pypi)
        return model

    def garbage(self) -> tuple[Garbage, ...]:
        """What `collect` would remove now."""
        return find_garbage(self._at)

    def collect(self) -> tuple[Garbage, ...]:
        """Remove what no model needs and what stopped pulls left, and tell what it was."""
        return collect(self._at)

    def _source(self, model: WantedModel) -> Source:
        return source_of(self._as_seen(model), self._fetching)

    def _pull(self, model: WantedModel, source: Source, progress: Progress, lock: int) -> Path:
        folder = self._at.pull_folder(model.name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            offer = source.offer(progress)
            check_file_names(offer.files)
            self._at.write_pending(_promised(model.name, offer))
            self._require_room(model.name, self._needed(model.name, source, offer))
            fetched = self._fetch_all(source, offer, folder, progress, lock)
            return admit(self._at, model.name, offer, fetched)
        finally:
            _drop_when_empty(folder)

    def _fetch_all(
        self, source: Source, offer: Offer, folder: Path, progress: Progress, lock: int
    ) -> tuple[Fetched, ...]:
        """The files of `offer` in order, those that are there already as they are."""
        total, fetched = size_of_all(offer.files), list[Fetched]()
        for file in offer.files:
            part = Part(progress, sum(each.size for each in fetched), total)
            found = have(self._at, file, folder)
            fetched.append(found or source.fetch(offer, file, folder, part, lock))
        return tuple(fetched)

    def _verify_file(self, name: str, file: StoredFile, progress: Progress) -> Check:
        progress.step(f"checking {name}")
        blob, damaged = self._at.blob(file.sha256), self._at.damaged(file.sha256)
        try:
            found = sha256_of(blob, progress) if blob.exists() else None
            if found is not None and found != file.sha256:
                damaged.parent.mkdir(exist_ok=True)
                blob.replace(damaged)
                (self._at.parts(name) / file.name).unlink(missing_ok=True)
        except OSError as error:
            raise HostProblem(
                f"cannot check {blob}: {error.strerror}", "Check the disk and the file's owner."
            ) from error
        whole = found == file.sha256
        return Check(
            name=name,
            file=file.name,
            whole=whole,
            expected=file.sha256,
            found=found,
        )

    def require_room(self, models: Sequence[WantedModel], progress: Progress) -> None:
        """Raises HostProblem when the disk has no room for all that `models` still lack.

        Asks their sources, where sizes are not known.
        """
        needed = 0
        for model in models:
            if self._good_enough(model) is None:
                source = self._source(model)
                needed += self._needed(model.name, source, source.offer(progress))
        self._at.root.mkdir(parents=True, exist_ok=True)
        self._require_room(", ".join(model.name for model in models), needed)

    def _needed(self, name: str, source: Source, offer: Offer) -> int:
        folder = self._at.pull_folder(name)
        return sum(
            source.space_needed(file, folder)
            for file in offer.files
            if have(self._at, file, folder) is None
        )

    def _require_room(self, name: str, needed: int) -> None:
        free = self._free_bytes(self._at.root)
        if free < needed:
            raise HostProblem(
                f"fetching {name} takes {megabytes(needed)} of disk space for a while, and only "
                f"{megabytes(free)} are free in {self._at.root}",
                "Free some space (`zluda-stack models list` shows what models take), or put the "
                "store on another disk by setting XDG_DATA_HOME.",
            )

    def _interrupted(self, name: str) -> Interrupted:
        kept = pulled_bytes(self._at.pull_folder(name))
        again = f"`zluda-stack models pull {name}`"
        if kept:
            return Interrupted(
                f"the pull of {name} was interrupted; {megabytes(kept)} of it are kept",
                f"{again} goes on from there.",
            )
        return Interrupted(
            f"the pull of {name} was interrupted and nothing of it was kept",
            f"{again} starts it again.",
        )

    def _watch_other_pull(self, model: WantedModel, progress: Progress) -> Callable[[], None]:
        steps: Iterator[str] = iter([f"waiting for another pull of {model.name}"])

        def watch() -> None:
            for step in steps:
                progress.step(step)
            progress.bytes(pulled_bytes(self._at.pull_folder(model.name)), size_of_all(model.files))

        return watch

    def _lock(self, name: str, while_waiting: Callable[[], None]) -> AbstractContextManager[int]:
        return locked(self._at.lock_file(name), while_waiting)

    def _lock_names(self) -> AbstractContextManager[int]:
        """Held for the moment in which records and blobs change, which names can share."""
        return locked(self._at.names_lock, lambda: None)


def _seen(model: WantedModel, record: Record) -> WantedModel:
    """`model` as `record` has it: with the hashes, sizes and the revision that were seen."""
    files = tuple(
        ModelFile(name=file.name, sha256=seen.sha256, size=seen.size)
        for file, seen in zip(model.files, record.files, strict=True)
    )
    hub = model.hub
    if hub is not None and record.hub is not None and hub.repository == record.hub.repository:
        hub = record.hub
    return Described(name=model.name, files=files, pypi=model.pypi, hub=hub, https=model.https)


def recorded(name: str, record: Record) -> Described:
    """The model `name` as it was once fetched, to be fetched again."""
    return Described(
        name=name,
        files=tuple(
            ModelFile(name=file.source_name, sha256=file.sha256, size=file.size)
            for file in record.files
        ),
        hub=record.hub,
        https=record.https,
    )


def _promised(name: str, offer: Offer) -> Described:
    """What a pull is to fetch; a size without a hash does not bind the next one."""
    files = tuple(file if file.sha256 else structs.replace(file, size=None) for file in offer.files)
    return Described(name=name, files=files, hub=offer.hub, https=offer.https)


def _drop_when_empty(folder: Path) -> None:
    """Remove the folder of a pull that left nothing to go on with."""
    if folder.is_dir() and pulled_bytes(folder) == 0:
        shutil.rmtree(folder, ignore_errors=True)


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
