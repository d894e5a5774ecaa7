"""Where the model store keeps what, and the record of one model.

blobs/sha256-<hex>     a whole file
damaged/sha256-<hex>   a file that `verify` found changed
names/<model>.json     which files a model is, and where they came from
parts/<model>/<file>   the files of a split model under the names by which llama.cpp finds them
pulls/<model>/         what a running pull has so far, or what a stopped one left
locks/<model>          held by whoever pulls, checks or removes that model
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from zluda_stack.catalog.schema import HubModel, ModelFile, Sha256
from zluda_stack.errors import HostProblem, UsageError
from zluda_stack.files import write_atomic
from zluda_stack.models.wanted import Described, WantedModel

# A file name and nothing else: a record can come from another machine.
_FILE_NAME = r"^(?!\.{1,2}\Z)[^/\x00-\x1f\x7f]{1,200}\Z"
FileName = Annotated[str, Meta(pattern=_FILE_NAME)]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
# No model has this name: it begins with a dot.
_ALL_NAMES = ".names"
_PENDING = "model.json"


class StoredFile(Struct, frozen=True, kw_only=True):
    """One whole file of a model, by its content; `size` in bytes.

    `origin` is its name at the source where that keeps it in a folder.
    """

    name: FileName
    sha256: Sha256
    size: Annotated[int, Meta(ge=0)]
    origin: Annotated[str, Meta(max_length=1000)] | None = None

    @property
    def source_name(self) -> str:
        """What the source calls it."""
        return self.origin or self.name


def stored_file(file: ModelFile, sha256: str, size: int) -> StoredFile:
    """The record of `file`, whose content has been seen."""
    name = stored_name(file)
    origin = file.name.partition("?")[0]
    return StoredFile(
        name=name, sha256=sha256, size=size, origin=None if origin == name else origin
    )


class Record(Struct, frozen=True, kw_only=True):
    """What a model of the store is: its files in order, and where they were fetched.

    `hub` holds the revision that was fetched, also where the catalogue names none; `https` is
    the folder's URL. A later pull of the model fetches exactly this.
    """

    files: Annotated[tuple[StoredFile, ...], Meta(min_length=1, max_length=1000)]
    source: Annotated[str, Meta(max_length=2000)]
    hub: HubModel | None = None
    https: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError when two files have one name."""
        if len({file.name for file in self.files}) != len(self.files):
            raise ValueError("two files have one name")

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)

    def is_of(self, model: WantedModel) -> bool:
        """True when this is what is wanted with `model`, as far as that says."""
        if len(self.files) != len(model.files):
            return False
        pairs = zip(self.files, model.files, strict=True)
        if any(wanted.sha256 not in {None, file.sha256} for file, wanted in pairs):
            return False
        known = all(wanted.sha256 for wanted in model.files)
        return known or self._is_at(model.hub)

    def _is_at(self, place: HubModel | None) -> bool:
        """True when the files are those of `place`, or came from no hub and nobody can tell."""
        if place is None or self.hub is None:
            return True
        same = place.repository == self.hub.repository
        return same and place.revision in {None, self.hub.revision}


def stored_name(file: ModelFile) -> str:
    """The name of a file without the folder and the query by which its source knows it."""
    return PurePosixPath(file.name.partition("?")[0]).name


def check_file_names(files: Iterable[ModelFile]) -> None:
    """Raises HostProblem for names under which the files cannot lie beside each other."""
    names = [stored_name(file) for file in files]
    wrong = [name for name in names if not re.match(_FILE_NAME, name)]
    if wrong or len(set(names)) != len(names):
        raise HostProblem(
            f"files cannot be kept under these names: {', '.join(map(repr, wrong or names))}",
            "Download them yourself, and take them with `zluda-stack models import FILE`.",
        )


def checked_name(name: str) -> str:
    """`name`, which can be that of a model. Raises UsageError for one that cannot."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a model",
            "Lower-case letters, digits and . _ - make a name; `zluda-stack models list` shows "
            "those that there are.",
        )
    return name


def is_name(name: str) -> bool:
    """True when `name` can be that of a model."""
    return _NAME.fullmatch(name) is not None


class Layout:
    """The paths of the store in the folder `root`, and its records."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names = root / "names"
        self.blobs = root / "blobs"
        self.damaged_files = root / "damaged"
        self.parts_folders = root / "parts"
        self.pulls = root / "pulls"
        self.names_lock = root / "locks" / _ALL_NAMES

    def record_file(self, name: str) -> Path:
        """Where the record of the model `name` is. Raises UsageError for no name."""
        return self.names / f"{checked_name(name)}.json"

    def pull_folder(self, name: str) -> Path:
        """What a pull of the model `name` has so far."""
        return self.pulls / checked_name(name)

    def pending(self, name: str) -> Described | None:
        """What a stopped pull of the model `name` was to fetch."""
        try:
            raw = (self.pull_folder(name) / _PENDING).read_bytes()
            return msgspec.json.decode(raw, type=Described)
        except (OSError, msgspec.DecodeError):
            return None

    def write_pending(self, model: Described) -> None:
        """Write what the pull that begins is to fetch. Raises HostProblem."""
        write_atomic(self.pull_folder(model.name) / _PENDING, msgspec.json.encode(model))

    def parts(self, name: str) -> Path:
        """The folder of a split model's files by their own names."""
        return self.parts_folders / checked_name(name)

    def lock_file(self, name: str) -> Path:
        """The lock of the model `name`."""
        return self.root / "locks" / checked_name(name)

    def blob(self, sha256: str) -> Path:
        """The whole file with this hash."""
        return self.blobs / blob_name(sha256)

    def damaged(self, sha256: str) -> Path:
        """The file that once had this hash."""
        return self.damaged_files / blob_name(sha256)

    def record(self, name: str) -> Record | None:
        """The record of the model `name`; None when there is none that can be read."""
        try:
            return msgspec.json.decode(self.record_file(name).read_bytes(), type=Record)
        except (OSError, msgspec.DecodeError):
            return None

    def records(self) -> dict[str, Record]:
        """All records that can be read, by the names of their models."""
        names = (path.stem for path in sorted(self.names.glob("*.json")) if is_name(path.stem))
        return {name: record for name in names if (record := self.record(name)) is not None}

    def write_record(self, name: str, record: Record) -> None:
        """Write the record of the model `name`. Raises HostProblem."""
        write_atomic(self.record_file(name), msgspec.json.encode(record))

    def served_file(self, name: str, record: Record) -> Path:
        """What llama.cpp is given: the one file, or the first part beside the others."""
        if len(record.files) == 1:
            return self.blob(record.files[0].sha256)
        return self.parts(name) / record.files[0].name

    def is_whole(self, name: str, record: Record) -> bool:
        """True when every file is there with its size, a split model's by its name too."""
        if any(size_of(self.blob(file.sha256)) != file.size for file in record.files):
            return False
        if len(record.files) == 1:
            return True
        folder = self.parts(name)
        return all(size_of(folder / file.name) == file.size for file in record.files)


def blob_name(sha256: str) -> str:
    """The name of the file with this hash."""
    return f"sha256-{sha256}"


def size_of(path: Path) -> int | None:
    """The size of the file in bytes; None when there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return None
