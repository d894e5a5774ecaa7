"""Models in a folder of any web server; nothing but their hashes vouches for them."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

import requests
from msgspec import structs

from zluda_stack.catalog.schema import ModelFile
from zluda_stack.errors import HostProblem
from zluda_stack.models.download import Downloader, Refused, Wanted, as_curl, missing_bytes
from zluda_stack.models.layout import stored_name
from zluda_stack.models.session import host, is_private
from zluda_stack.models.source import Fetched, Offer
from zluda_stack.models.wanted import WantedModel
from zluda_stack.progress import Progress

_SAID = {
    HTTPStatus.UNAUTHORIZED: "wants to know who asks",
    HTTPStatus.FORBIDDEN: "does not give it to you",
    HTTPStatus.NOT_FOUND: "does not have it",
    HTTPStatus.GONE: "does not have it any more",
}


class HttpsSource:
    """Fetches `model` from the folder with the URL `base`."""

    def __init__(self, model: WantedModel, base: str, downloader: Downloader) -> None:
        self._model = model
        self._base = base.rstrip("/")
        self._downloader = downloader

    def offer(self, progress: Progress) -> Offer:
        """The files, with the sizes that the server names where they are not known.

        Raises HostProblem for a file without a hash on a line where anyone could change it.
        """
        progress.step(f"asking {host(self._base)} for the size of {self._model.name}")
        files = tuple(self._sized(file) for file in self._model.files)
        return Offer(files=files, source=self._base, https=self._base)

    def space_needed(self, file: ModelFile, folder: Path) -> int:
        """What is missing of the file."""
        return missing_bytes(file, folder)

    def commands(self, folder: Path) -> tuple[tuple[str, ...], ...]:
        """curl commands that do the same."""
        return tuple(
            as_curl(self._url(file), folder / stored_name(file)) for file in self._model.files
        )

    def fetch(
        self,
        offer: Offer,  # noqa: ARG002
        file: ModelFile,
        folder: Path,
        progress: Progress,
        lock: int,  # noqa: ARG002
    ) -> Fetched:
        """The file in `folder`, checked. Raises HostProblem."""
        return fetch_plain(self._downloader, self._url(file), file, folder, progress)

    def _sized(self, file: ModelFile) -> ModelFile:
        url = self._url(file)
        if file.sha256 is None and not is_private(url):
            raise HostProblem(
                f"{url} is not fetched without a hash: over http anyone can change it on its way",
                "Use https, or give the hash with --sha256.",
            )
        if file.size is not None:
            return file
        return structs.replace(file, size=self._downloader.size(url))

    def _url(self, file: ModelFile) -> str:
        return f"{self._base}/{file.name}"


def fetch_plain(
    downloader: Downloader, url: str, file: ModelFile, folder: Path, progress: Progress
) -> Fetched:
    """The `file` at `url`, checked. Raises HostProblem with the server's refusal in words."""
    wanted = Wanted(url=url, title=stored_name(file), sha256=file.sha256, size=file.size)
    try:
        return downloader.fetch(wanted, folder, progress)
    except Refused as refused:
        raise refusal(refused.response, url) from refused


def refusal(response: requests.Response, url: str) -> HostProblem:
    """What a server without further explanations means by refusing `url`."""
    status = response.status_code
    said = _SAID.get(HTTPStatus(status)) if status in set(HTTPStatus) else None
    return HostProblem(
        f"{url} was not fetched: {host(response.url)} {said or 'refuses it'} (status {status})",
        "Check the URL; a name and password can stand in ~/.netrc.",
    )
