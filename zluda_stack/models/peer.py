"""Another store as the source of a model: a folder, or the URL under which a server shows one.

Both have what `layout` describes: names/<model>.json and blobs/sha256-<hex>. `models export`
writes such a folder, and the store itself is one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from zluda_stack.catalog.schema import ModelFile
from zluda_stack.errors import HostProblem, UsageError
from zluda_stack.models.digest import copy_checked
from zluda_stack.models.download import Downloader, Refused, as_curl
from zluda_stack.models.fetching import Fetching
from zluda_stack.models.https import fetch_plain, refusal
from zluda_stack.models.layout import (
    Layout,
    Record,
    StoredFile,
    blob_name,
    checked_name,
    stored_file,
    stored_name,
)
from zluda_stack.models.session import host
from zluda_stack.models.source import Fetched, Offer
from zluda_stack.models.wanted import WantedModel
from zluda_stack.progress import Progress

LONGEST_RECORD = 1 << 20


class Peer(Protocol):
    """A store that models are taken from."""

    def record(self, name: str, progress: Progress) -> Record:
        """What the model `name` is there. Raises HostProblem, UsageError when it lacks it."""

    def command(self, file: StoredFile, target: Path) -> tuple[str, ...]:
        """A command that copies the file to `target`."""

    def fetch(self, file: StoredFile, folder: Path, progress: Progress) -> Fetched:
        """The file in `folder`, checked. Raises HostProblem, OSError."""


def open_peer(place: str, fetching: Fetching) -> Peer:
    """The store in the folder or under the URL `place`. Raises UsageError for no such folder."""
    if "://" in place:
        return WebPeer(place.rstrip("/"), Downloader(fetching))
    folder = Path(place).expanduser()
    if not (folder / "names").is_dir():
        raise UsageError(
            f"{place} is no folder that `models export` wrote, nor a model store",
            "A tar file is taken by `zluda-stack models import FILE`.",
        )
    return FolderPeer(folder)


class FolderPeer:
    """A store in a folder, such as that of a disk or of another user."""

    def __init__(self, folder: Path) -> None:
        self._at = Layout(folder)

    def record(self, name: str, progress: Progress) -> Record:  # noqa: ARG002
        """What the model `name` is there. Raises UsageError when it is not."""
        record = self._at.record(name)
        if record is None:
            raise UsageError(
                f"the store in {self._at.root} has no model {name}", f"See {self._at.names}."
            )
        return record

    def command(self, file: StoredFile, target: Path) -> tuple[str, ...]:
        """A cp command."""
        return ("cp", str(self._at.blob(file.sha256)), str(target))

    def fetch(self, file: StoredFile, folder: Path, progress: Progress) -> Fetched:
        """The file in `folder`, hashed while it is copied. Raises HostProblem, OSError."""
        progress.step(f"copying {file.name}")
        blob, target = self._at.blob(file.sha256), folder / blob_name(file.sha256)
        with blob.open("rb") as source:
            copy_checked(source, target, file.sha256, file.size, progress, named=str(blob))
        return Fetched(path=target, sha256=file.sha256, size=file.size)


class WebPeer:
    """A store behind a web server."""

    def __init__(self, base: str, downloader: Downloader) -> None:
        self._base = base
        self._downloader = downloader

    def record(self, name: str, progress: Progress) -> Record:
        """What the model `name` is there. Raises HostProblem."""
        url = f"{self._base}/names/{checked_name(name)}.json"
        progress.step(f"asking {host(url)} for {name}")
        try:
            raw = self._downloader.read(url, name, LONGEST_RECORD, progress)
        except Refused as refused:
            raise refusal(refused.response, url) from refused
        try:
            return msgspec.json.decode(raw, type=Record)
        except msgspec.DecodeError as error:
            raise HostProblem(
                f"{url} is no record of a model store: {error}", "Check the URL."
            ) from error

    def command(self, file: StoredFile, target: Path) -> tuple[str, ...]:
        """A curl command."""
        return as_curl(self._url(file), target)

    def fetch(self, file: StoredFile, folder: Path, progress: Progress) -> Fetched:
        """The file in `folder`, checked. Raises HostProblem, OSError."""
        return fetch_plain(self._downloader, self._url(file), as_model_file(file), folder, progress)

    def _url(self, file: StoredFile) -> str:
        return f"{self._base}/blobs/{blob_name(file.sha256)}"


class PeerSource:
    """Fetches `model` from `peer`, when that has what is wanted."""

    def __init__(self, model: WantedModel, peer: Peer) -> None:
        self._model = model
        self._peer = peer

    def offer(self, progress: Progress) -> Offer:
        """The peer's files and its word on where they came from.

        Raises HostProblem when they are not the wanted ones.
        """
        record = self._peer.record(self._model.name, progress)
        if not record.is_of(self._model):
            raise HostProblem(
                f"the other store has another {self._model.name}: {_hashes(record)}",
                "The catalogue or this store names other hashes. Update the other store, or pull "
                "without --from.",
            )
        return Offer(
            files=tuple(as_model_file(file) for file in record.files),
            source=record.source,
            hub=record.hub,
            https=record.https,
        )

    def space_needed(self, file: ModelFile, folder: Path) -> int:  # noqa: ARG002
        """The whole file."""
        return file.size or 0

    def commands(self, folder: Path) -> tuple[tuple[str, ...], ...]:
        """Commands that copy the files that are known beforehand."""
        return tuple(
            self._peer.command(_stored(file), folder / stored_name(file))
            for file in self._model.files
            if file.sha256 is not None
        )

    def fetch(
        self,
        offer: Offer,  # noqa: ARG002
        file: ModelFile,
        folder: Path,
        progress: Progress,
        lock: int,  # noqa: ARG002
    ) -> Fetched:
        """The file in `folder`, checked. Raises HostProblem, OSError."""
        return self._peer.fetch(_stored(file), folder, progress)


def as_model_file(file: StoredFile) -> ModelFile:
    """The file of a record as one to fetch."""
    return ModelFile(name=file.source_name, sha256=file.sha256, size=file.size)


def _stored(file: ModelFile) -> StoredFile:
    return stored_file(file, file.sha256 or "", file.size or 0)


def _hashes(record: Record) -> str:
    return ", ".join(f"{file.name} with sha256 {file.sha256}" for file in record.files)
