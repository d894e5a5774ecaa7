"""A Hugging Face hub: what a repository holds at a revision, and why it will not give a file.

The `huggingface_hub` package is not used here: it brings 20 MB (hf-xet, httpx2, fsspec; version
2.4.0) and half a second of import for the one request that is made below, and its downloads
know neither this store's limits nor its records. The tests ask the same of the same fake hub with
that package and compare. The API's shape, the headers of its errors and where a user's token is
kept are those of its utils/_http.py, utils/_auth.py and constants.py (read 2026-11-30).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

import msgspec
import requests
from msgspec import Struct

from zluda_stack.catalog.schema import GitCommit, HubModel, ModelFile, Sha256
from zluda_stack.errors import HostProblem, StackError, UsageError
from zluda_stack.models.download import Downloader, Refused, Wanted, as_curl, missing_bytes
from zluda_stack.models.fetching import Fetching
from zluda_stack.models.layout import stored_name
from zluda_stack.models.session import Bearer, host, is_private
from zluda_stack.models.source import Fetched, Offer
from zluda_stack.models.wanted import WantedModel
from zluda_stack.progress import Progress

DEFAULT_ENDPOINT = "https://huggingface.co"
_MAIN = "main"
_LONGEST_ANSWER = 64 << 20
_TOKEN = re.compile(r"[\x21-\x7e]+")
_NOT_SHOWN = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}


class Lfs(Struct, frozen=True):
    """What the hub knows of a large file: the hash of its content."""

    sha256: Sha256


class HubFile(Struct, frozen=True, kw_only=True):
    """One file of a repository; `size` in bytes."""

    name: str = msgspec.field(name="rfilename")
    size: int | None = None
    lfs: Lfs | None = None

    def to_fetch(self) -> ModelFile:
        """The file as one to fetch."""
        return ModelFile(
            name=self.name, sha256=None if self.lfs is None else self.lfs.sha256, size=self.size
        )


class Repository(Struct, frozen=True, kw_only=True):
    """A repository at one commit."""

    revision: GitCommit = msgspec.field(name="sha")
    files: tuple[HubFile, ...] = msgspec.field(name="siblings")


class Token(Struct, frozen=True):
    """A user's token, and where it was found, for people."""

    value: str
    place: str


def endpoint(environ: Mapping[str, str]) -> str:
    """The hub's or its mirror's URL without a slash at its end."""
    return (environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")


def find_token(environ: Mapping[str, str]) -> Token | None:
    """The user's token: of the environment, or of the file that `hf auth login` writes.

    Raises UsageError, without showing it, for one that no request could carry.
    """
    token = _find_token(environ)
    if token is not None and not _TOKEN.fullmatch(token.value):
        raise UsageError(
            f"the token in {token.place} holds characters that no token has",
            "Copy it again; it is one line that begins with hf_.",
        )
    return token


def _find_token(environ: Mapping[str, str]) -> Token | None:
    for variable in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        value = environ.get(variable, "").strip()
        if value:
            return Token(value, variable)
    file = _token_file(environ)
    if file is None:
        return None
    try:
        value = file.expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError, RuntimeError):
        return None
    return Token(value, str(file)) if value else None


def _token_file(environ: Mapping[str, str]) -> Path | None:
    """Where `hf auth login` writes; None for a user without a home, as in a container."""
    if environ.get("HF_TOKEN_PATH"):
        return Path(environ["HF_TOKEN_PATH"])
    if environ.get("HF_HOME"):
        return Path(environ["HF_HOME"]) / "token"
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"]) / "huggingface/token"
    home = environ.get("HOME")
    return Path(home) / ".cache/huggingface/token" if home else None


class Hub:
    """The hub at the URL `endpoint`, asked with a downloader that carries the user's token."""

    def __init__(self, endpoint: str, token: Token | None, downloader: Downloader) -> None:
        self._endpoint = endpoint
        self._token = token
        self.downloader = downloader

    def repository(self, name: str, revision: str | None, progress: Progress) -> Repository:
        """What is in the repository `name` at `revision` (None: its main branch now).

        Raises HostProblem, UsageError for a repository or revision that there is not.
        """
        progress.step(f"asking for the files of {name}")
        url = f"{self._endpoint}/api/models/{quote(name)}"
        if revision is not None:
            url += f"/revision/{quote(revision, safe='')}"
        try:
            raw = self.downloader.read(
                f"{url}?blobs=True", f"the files of {name}", _LONGEST_ANSWER, progress
            )
        except Refused as refused:
            raise self.explain(refused.response, name, revision) from refused
        try:
            return msgspec.json.decode(raw, type=Repository)
        except msgspec.DecodeError as error:
            raise HostProblem(
                f"{host(url)} does not answer as a hub does: {error}",
                "Check HF_ENDPOINT." if self._endpoint != DEFAULT_ENDPOINT else "Try again later.",
            ) from error

    def url(self, repository: str, revision: str | None, file: str) -> str:
        """Where the file is, as it was at `revision`."""
        revision = quote(revision or _MAIN, safe="")
        return f"{self._endpoint}/{quote(repository)}/resolve/{revision}/{quote(file)}"

    def explain(
        self, response: requests.Response, repository: str, revision: str | None
    ) -> StackError:
        """Why the hub refused something of `repository`, and what the user can do."""
        code = response.headers.get("X-Error-Code")
        message = response.headers.get("X-Error-Message", "")
        page = f"{self._endpoint}/{repository}"
        if code == "RevisionNotFound":
            return UsageError(f"{repository} has no revision {revision}", f"See {page}/commits.")
        if code == "EntryNotFound":
            return UsageError(f"{response.url} is not there", f"See {page}/tree/main.")
        if code == "GatedRepo":
            return HostProblem(
                f"{repository} is for those only who accepted its terms", self._log_in(page)
            )
        if self._token is not None and message.startswith("Invalid credentials"):
            return HostProblem(
                f"{host(page)} does not know the token of {self._token.place}",
                "Log in again with `hf auth login`, or set HF_TOKEN to one that is valid.",
            )
        if code == "RepoNotFound" or response.status_code in _NOT_SHOWN:
            return HostProblem(
                f"{host(page)} has no repository {repository}, or does not show it to everyone",
                f"Check the name. {self._log_in(page)}",
            )
        return HostProblem(
            f"{host(page)} refuses {repository} with status {response.status_code}"
            + (f": {message}" if message else ""),
            f"See {page}.",
        )

    def _log_in(self, page: str) -> str:
        if self._token is None:
            return f"Open {page} logged in, then set HF_TOKEN or run `hf auth login`."
        return f"Open {page} with the account whose token is in {self._token.place}."


def open_hub(fetching: Fetching) -> Hub:
    """The user's hub or mirror with the user's token.

    The token goes to that host only, and never over a line that others can read.
    """
    url, token = endpoint(fetching.environ), find_token(fetching.environ)
    auth = Bearer(token.value) if token is not None and is_private(url) else None
    return Hub(url, token, Downloader(fetching, auth))


class HubSource:
    """Fetches `model` from its repository `place` at a hub."""

    def __init__(self, model: WantedModel, place: HubModel, hub: Hub) -> None:
        self._model = model
        self._place = place
        self._hub = hub

    def offer(self, progress: Progress) -> Offer:
        """The files with what the hub knows of them, at one commit.

        The hub is not asked when the model names the commit and all hashes and sizes.
        """
        repository, revision = self._place.repository, self._place.revision
        known = all(file.sha256 and file.size for file in self._model.files)
        if known and revision is not None:
            return _offer(self._place, self._model.files)
        found = self._hub.repository(repository, revision, progress)
        files = {file.name: file for file in found.files}
        return _offer(
            HubModel(repository=repository, revision=found.revision),
            tuple(self._described(file, files.get(file.name)) for file in self._model.files),
        )

    def space_needed(self, file: ModelFile, folder: Path) -> int:
        """What is missing of the file."""
        return missing_bytes(file, folder)

    def commands(self, folder: Path) -> tuple[tuple[str, ...], ...]:
        """curl commands that do the same, without the token."""
        return tuple(
            as_curl(self._url(self._place, file), folder / stored_name(file))
            for file in self._model.files
        )

    def fetch(
        self,
        offer: Offer,
        file: ModelFile,
        folder: Path,
        progress: Progress,
        lock: int,  # noqa: ARG002
    ) -> Fetched:
        """The file in `folder`, checked. Raises HostProblem, UsageError."""
        place = offer.hub or self._place
        wanted = Wanted(
            url=self._url(place, file),
            title=stored_name(file),
            sha256=file.sha256,
            size=file.size,
        )
        try:
            return self._hub.downloader.fetch(wanted, folder, progress)
        except Refused as refused:
            raise self._hub.explain(refused.response, place.repository, place.revision) from refused

    def _url(self, place: HubModel, file: ModelFile) -> str:
        return self._hub.url(place.repository, place.revision, file.name)

    def _described(self, file: ModelFile, found: HubFile | None) -> ModelFile:
        """What is known of `file` and what the hub knows. Raises HostProblem where they differ."""
        repository = self._place.repository
        if found is None:
            raise HostProblem(
                f"{repository} has no file {file.name}",
                "It was renamed or removed there, or the catalogue is older: update zluda-stack.",
            )
        theirs = found.to_fetch().sha256
        if file.sha256 is not None and theirs not in {None, file.sha256}:
            raise HostProblem(
                f"{file.name} in {repository} has another content now: expected sha256 "
                f"{file.sha256}, the hub names {theirs}",
                "Nothing was fetched, and what the store has stays as it is.",
            )
        return ModelFile(
            name=file.name,
            sha256=file.sha256 or theirs,
            size=file.size if file.size is not None else found.size,
        )


def _offer(place: HubModel, files: tuple[ModelFile, ...]) -> Offer:
    return Offer(files=files, source=f"hub {place.repository}@{place.revision}", hub=place)
