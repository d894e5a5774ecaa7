"""A GGUF file of the user's, taken into the store."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from msgspec import structs

from zluda_stack.catalog.schema import ModelFile
from zluda_stack.errors import HostProblem, UsageError
from zluda_stack.models.architecture import read_parts
from zluda_stack.models.digest import copy_with_sha256, sha256_of
from zluda_stack.models.gguf_reader import BadGguf
from zluda_stack.models.layout import blob_name, stored_name
from zluda_stack.models.reference import all_parts
from zluda_stack.models.source import Fetched, Offer
from zluda_stack.progress import Progress


def files_at(path: Path) -> tuple[ModelFile, ...]:
    """The files of the model of which `path` is one, with their sizes.

    Raises UsageError for what is no whole model.
    """
    names = all_parts(path.name)
    try:
        parts = read_parts(path.with_name(names[0]))
    except OSError as error:
        raise UsageError(
            f"{error.filename or path}: {error.strerror}", "Check the path."
        ) from error
    except (BadGguf, ValueError) as error:
        raise UsageError(f"{path}: {error}", "Give the path of a whole GGUF file.") from error
    pairs = zip(names, parts, strict=True)
    return tuple(ModelFile(name=name, sha256=None, size=part.size) for name, part in pairs)


class LocalSource:
    """Takes `files` out of `folder`: by a copy, or by a second name for the same bytes."""

    def __init__(self, folder: Path, files: tuple[ModelFile, ...], *, link: bool) -> None:
        self._folder = folder
        self._files = files
        self._link = link

    def offer(self, progress: Progress) -> Offer:  # noqa: ARG002
        """The files as they are there."""
        return Offer(files=self._files, source=f"file {self._path(self._files[0])}")

    def space_needed(self, file: ModelFile, folder: Path) -> int:  # noqa: ARG002
        """The whole file, or nothing for a second name."""
        return 0 if self._link else file.size or 0

    def commands(self, folder: Path) -> tuple[tuple[str, ...], ...]:
        """The cp or ln commands that do the same."""
        verb = "ln" if self._link else "cp"
        return tuple(
            (verb, str(self._path(file)), str(folder / stored_name(file))) for file in self._files
        )

    def fetch(
        self,
        offer: Offer,  # noqa: ARG002
        file: ModelFile,
        folder: Path,
        progress: Progress,
        lock: int,  # noqa: ARG002
    ) -> Fetched:
        """The file in `folder`, hashed. Raises HostProblem, OSError."""
        path = self._path(file)
        half = folder / f"{stored_name(file)}.copy"
        half.unlink(missing_ok=True)
        progress.step(f"{'hashing' if self._link else 'copying'} {path.name}")
        try:
            digest = self._take(path, half, file.size or 0, progress)
            if file.sha256 not in {None, digest}:
                raise HostProblem(
                    f"{path} is not the model of this name: expected sha256 {file.sha256}, "
                    f"got {digest}",
                    "Give it another name with --name.",
                )
            size = half.stat().st_size
            return Fetched(path=half.replace(folder / blob_name(digest)), sha256=digest, size=size)
        finally:
            half.unlink(missing_ok=True)

    def _take(self, path: Path, target: Path, size: int, progress: Progress) -> str:
        if not self._link:
            with path.open("rb") as source:
                return copy_with_sha256(source, target, size, progress)
        try:
            os.link(path, target)
        except OSError as error:
            if error.errno not in {errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP}:
                raise
            raise HostProblem(
                f"{path} cannot have a second name in the store: {error.strerror}",
                "Leave --link out, and it is copied.",
            ) from error
        return sha256_of(target, progress)

    def _path(self, file: ModelFile) -> Path:
        return self._folder / stored_name(file)


def as_known(files: tuple[ModelFile, ...], known: tuple[ModelFile, ...]) -> tuple[ModelFile, ...]:
    """`files` with the hashes that the catalogue knows of its own model of that name."""
    if len(files) != len(known):
        return files
    pairs = zip(files, known, strict=True)
    return tuple(structs.replace(file, sha256=its.sha256) for file, its in pairs)
