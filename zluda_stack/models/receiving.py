"""Models that come as a stream of whole files, whose records came first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from zluda_stack.catalog.schema import ModelFile
from zluda_stack.errors import HostProblem
from zluda_stack.models.admission import admit, have
from zluda_stack.models.digest import Readable, copy_checked
from zluda_stack.models.layout import Layout, Record, StoredFile, blob_name
from zluda_stack.models.source import Offer
from zluda_stack.progress import Progress


class Receiving:
    """Takes the files of `records`; the caller holds the locks of their names.

    A file that was taken stays for a later try when the stream breaks off.
    """

    def __init__(self, at: Layout, records: Mapping[str, Record]) -> None:
        self._at = at
        self._records = records
        self._places = {
            file.sha256: (file, at.pull_folder(name))
            for name, record in records.items()
            for file in record.files
        }

    def file(self, sha256: str) -> StoredFile | None:
        """The file with this hash; None when no record names it."""
        place = self._places.get(sha256)
        return None if place is None else place[0]

    def lacks(self, sha256: str) -> bool:
        """True when the file of the records is not here yet."""
        file, folder = self._places[sha256]
        return have(self._at, _wanted(file), folder) is None

    def bytes_lacking(self) -> int:
        """How many bytes are still to come."""
        return sum(file.size for sha256, (file, _) in self._places.items() if self.lacks(sha256))

    def take(self, sha256: str, source: Readable, progress: Progress) -> None:
        """Keep the file, if it is what its hash says. Raises HostProblem, OSError."""
        file, folder = self._places[sha256]
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / blob_name(sha256)
        copy_checked(source, target, sha256, file.size, progress, named=file.name)

    def admit(self) -> Iterator[tuple[str, Path]]:
        """Make models of what is whole, and name each. Raises HostProblem for what is not."""
        lacking = []
        for name, record in self._records.items():
            files = tuple(map(_wanted, record.files))
            found = [have(self._at, file, self._place(file)) for file in files]
            whole = tuple(file for file in found if file is not None)
            if len(whole) < len(files):
                lacking.append(name)
                continue
            offer = Offer(files=files, source=record.source, hub=record.hub, https=record.https)
            yield name, admit(self._at, name, offer, whole)
        if lacking:
            raise HostProblem(
                f"some files of {', '.join(lacking)} did not come",
                "What came is kept; import the whole archive again.",
            )

    def _place(self, file: ModelFile) -> Path:
        return self._places[file.sha256 or ""][1]


def _wanted(file: StoredFile) -> ModelFile:
    return ModelFile(name=file.source_name, sha256=file.sha256, size=file.size)
