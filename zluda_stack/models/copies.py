"""Models in a folder that has the layout of a store, for another one to take them from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zluda_stack.errors import HostProblem
from zluda_stack.models.digest import copy_checked
from zluda_stack.models.layout import Layout, StoredFile, size_of
from zluda_stack.models.store import Store
from zluda_stack.progress import Progress


def copy_models(store: Store, names: Sequence[str], folder: Path, progress: Progress) -> None:
    """Copy the models `names` into `folder`; files that are there already stay.

    Raises UsageError, HostProblem for a model that is not here or not whole.
    """
    there = Layout(folder)
    try:
        there.blobs.mkdir(parents=True, exist_ok=True)
        for name in names:
            progress.step(f"writing {name}")
            for file, path in store.files(name):
                _copy(file, path, there.blob(file.sha256), progress)
            record = store.record(name)
            if record is not None:
                there.write_record(name, record)
    except OSError as error:
        raise HostProblem(
            f"cannot write into {folder}: {error.strerror}", "Check its owner and free space."
        ) from error


def _copy(file: StoredFile, path: Path, target: Path, progress: Progress) -> None:
    if size_of(target) == file.size:
        return
    with path.open("rb") as source:
        copy_checked(source, target, file.sha256, file.size, progress, named=str(path))
