"""The one downloader: it goes on where it stopped, and a wrong file never gets out of it.

Every failure of a connection is met here in one loop, before a body, in the middle of one and
between two. urllib3's Retry counts the tries and computes the pauses; its own loop could not be
used, since it ends where a body begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import requests
from msgspec import Struct
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError, InvalidHeader, MaxRetryError
from urllib3.util.retry import Retry

from zluda_stack.catalog.schema import ModelFile
from zluda_stack.errors import HostProblem
from zluda_stack.models.fetching import Fetching
from zluda_stack.models.gguf_reader import BadGguf, read
from zluda_stack.models.layout import stored_name
from zluda_stack.models.partial import Partial, partial_size
from zluda_stack.models.session import InsecureRedirect, Session, host
from zluda_stack.models.source import Fetched
from zluda_stack.models.stalls import StallWatch
from zluda_stack.progress import Progress
from zluda_stack.units import megabytes

_CHUNK = 1 << 18
_CONNECT_SECONDS = 15
_LONGEST_PAUSE = 30
# A server that wants a longer pause is told to the user instead.
_LONGEST_WAIT_ASKED = 300
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class Wanted(Struct, frozen=True, kw_only=True):
    """A file to download, called `title`; hash and size (bytes) are None when unknown."""

    url: str
    title: str
    sha256: str | None
    size: int | None


class Refused(Exception):
    """The server answered and will not give the file; `response` says how."""

    def __init__(self, response: requests.Response) -> None:
        super().__init__(f"status {response.status_code}")
        self.response = response


class _Again(Exception):
    """Something that may pass; `pause` is what the server asked for, in seconds.

    `answered` is False when the server was not even reached.
    """

    def __init__(self, reason: str, pause: float | None = None, *, answered: bool = True) -> None:
        super().__init__(reason)
        self.pause = pause
        self.answered = answered


class Downloader:
    """Downloads files in one session; `auth` is for the host that is asked, and no other."""

    def __init__(self, fetching: Fetching, auth: AuthBase | None = None) -> None:
        self._session = Session()
        self._auth = auth
        self._throttle = fetching.limit
        self._patience = fetching.patience

    @property
    def sends_token(self) -> bool:
        """True when requests carry a token."""
        return self._auth is not None

    def size(self, url: str) -> int | None:
        """What the server says the file's size is in bytes; None when it does not say."""
        try:
            with closing(self._ask("HEAD", url, {})) as response:
                return _count(response) if response.ok else None
        except _Again:
            return None

    def read(self, url: str, title: str, most: int, progress: Progress) -> bytes:
        """A small document of at most `most` bytes. Raises HostProblem, Refused."""
        retry = self._fresh(self._patience.first_tries)
        while True:
            try:
                with closing(self._ask("GET", url, {})) as response:
                    return _small(response, url, title, most)
            except _Again as failure:
                try:
                    retry = self._pause(retry, failure, f"asking for {title}", progress)
                except MaxRetryError:
                    raise _given_up(title, url, failure, 0) from failure

    def fetch(self, wanted: Wanted, folder: Path, progress: Progress) -> Fetched:
        """The whole file in `folder`, checked, under the name of its content.

        Raises HostProblem, Refused for an answer that only its source can explain, OSError.
        What has arrived stays in `folder` for the next call, except in a file that is wrong.
        """
        key = wanted.sha256 or wanted.url
        with Partial(folder, wanted.title, key, progress) as partial:
            self._complete(wanted, partial, progress)
            if partial.joined and _problem(wanted, partial) is not None:
                progress.step(f"{wanted.title}: what was kept does not fit; fetching it again")
                partial.restart()
                self._complete(wanted, partial, progress)
            problem = _problem(wanted, partial)
            if problem is not None:
                partial.discard()
                raise HostProblem(
                    problem, "It was thrown away. What else was fetched of the model is kept."
                )
            path = partial.finish()
            return Fetched(path=path, sha256=partial.digest(), size=partial.length)

    def _complete(self, wanted: Wanted, partial: Partial, progress: Progress) -> None:
        """Bring `partial` to its full length, in as many tries as that takes."""
        step, heard = _step(wanted), False
        best, retry = partial.length, self._fresh(self._patience.first_tries)
        while not _has_all(wanted, partial):
            progress.step(step)
            try:
                self._try(wanted, partial, progress)
                return
            except _Again as failure:
                if partial.length > best or (failure.answered and not heard):
                    best, retry = max(best, partial.length), self._fresh(self._patience.tries)
                heard = heard or failure.answered
                try:
                    retry = self._pause(retry, failure, step, progress)
                except MaxRetryError:
                    raise _given_up(wanted.title, wanted.url, failure, partial.length) from failure

    def _pause(self, retry: Retry, failure: _Again, step: str, progress: Progress) -> Retry:
        """Wait before the next try. Raises MaxRetryError when there were too many."""
        left = retry.increment("GET", error=failure)
        pause = left.get_backoff_time() if failure.pause is None else failure.pause
        progress.step(f"{step} ... now: {failure}; trying again in {pause:.0f} s")
        self._patience.wait(pause)
        return left

    def _fresh(self, tries: int) -> Retry:
        return Retry(
            total=tries,
            backoff_factor=self._patience.backoff_seconds,
            backoff_max=_LONGEST_PAUSE,
        )

    def _try(self, wanted: Wanted, partial: Partial, progress: Progress) -> None:
        """One request: returns when the file has its full length, else raises _Again."""
        if wanted.size is not None and partial.length > wanted.size:
            partial.restart()
        headers = {}
        if partial.length:
            headers["Range"] = f"bytes={partial.length}-"
            if partial.origin.validator:
                headers["If-Range"] = partial.origin.validator
        step = _step(wanted)
        with (
            StallWatch(step, progress, self._patience.told_seconds) as watch,
            closing(self._ask("GET", wanted.url, headers)) as response,
        ):
            total = _begin(response, wanted, partial)
            for chunk in _chunks(response):
                watch.heard()
                _append(chunk, wanted, partial, total)
                progress.bytes(partial.length, total)
                self._throttle.spend(len(chunk))
                watch.waits()
        if total is not None and partial.length != total:
            raise _Again(f"the connection ended after {megabytes(partial.length)}")

    def _ask(self, method: str, url: str, headers: dict[str, str]) -> requests.Response:
        try:
            return self._session.request(
                method,
                url,
                headers={"Accept-Encoding": "identity", **headers},
                auth=self._auth,
                stream=True,
                allow_redirects=True,
                timeout=(_CONNECT_SECONDS, self._patience.stall_seconds),
            )
        except InsecureRedirect as error:
            raise HostProblem(
                f"{url} was not fetched: {error}, where anyone could change the file",
                "Use a URL that stays on https.",
            ) from error
        except requests.TooManyRedirects as error:
            raise HostProblem(
                f"{url} was not fetched: it leads in circles", "Check the URL in a browser."
            ) from error
        except requests.exceptions.SSLError as error:
            raise HostProblem(
                f"{host(url)} shows a certificate that is not trusted",
                "Behind a proxy that opens TLS, name its certificate in SSL_CERT_FILE.",
            ) from error
        except (requests.ConnectionError, requests.Timeout) as error:
            raise _Again(_reason(error), answered=False) from error
        except requests.RequestException as error:
            raise HostProblem(f"{url} cannot be asked for: {error}", "Check the URL.") from error


def _step(wanted: Wanted) -> str:
    return f"downloading {wanted.title}"


def _small(response: requests.Response, url: str, title: str, most: int) -> bytes:
    if response.status_code in _PASSING:
        raise _passing(response, url, title)
    if response.status_code != requests.codes.ok:
        raise Refused(response)
    whole = bytearray()
    for chunk in _chunks(response):
        whole += chunk
        if len(whole) > most:
            raise HostProblem(f"{title} of {host(url)} is longer than {most} bytes", "")
    if _count(response) not in {None, len(whole)}:
        raise _Again("the connection was lost")
    return bytes(whole)


def _has_all(wanted: Wanted, partial: Partial) -> bool:
    size = wanted.size if wanted.size is not None else partial.origin.total
    return size is not None and partial.length == size


def _chunks(response: requests.Response) -> Iterator[bytes]:
    """The body as it arrives. Raises _Again when the connection fails."""
    while True:
        try:
            chunk: bytes = response.raw.read1(_CHUNK, decode_content=False)
        except (HTTPError, OSError) as error:
            raise _Again(_reason(error)) from error
        if not chunk:
            return
        yield chunk


def _append(chunk: bytes, wanted: Wanted, partial: Partial, total: int | None) -> None:
    if total is not None and partial.length + len(chunk) > total:
        partial.restart()
        raise _Again(f"{host(wanted.url)} sends more than the {total} bytes that it should")
    partial.write(chunk)


def _begin(response: requests.Response, wanted: Wanted, partial: Partial) -> int | None:
    """Judge the answer; returns the whole file's size as the server or `wanted` names it.

    Afterwards the body's first byte belongs right behind what `partial` has. Raises _Again,
    Refused.
    """
    if response.status_code == requests.codes.partial_content:
        total = _continued(response, partial)
    elif response.status_code == requests.codes.ok:
        # The file changed, or the server knows no ranges.
        partial.restart()
        total = _count(response)
    elif response.status_code == requests.codes.requested_range_not_satisfiable:
        partial.restart()
        raise _Again(f"{host(wanted.url)} has no more of it; beginning anew")
    elif response.status_code in _PASSING:
        raise _passing(response, wanted.url, wanted.title)
    else:
        raise Refused(response)
    if wanted.size is not None and total not in {None, wanted.size}:
        partial.restart()
        raise _Again(
            f"{host(wanted.url)} has {total} bytes under this name, {wanted.size} are expected"
        )
    partial.know(_validator(response), total)
    return total if wanted.size is None else wanted.size


def _continued(response: requests.Response, partial: Partial) -> int | None:
    """The whole size that a partial answer names. Raises _Again for one that does not fit."""
    match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    known, now = partial.origin.validator, _validator(response)
    total = int(match[3]) if match and match[3] != "*" else None
    moved = known is not None and now is not None and known != now
    other = partial.origin.total is not None and total not in {None, partial.origin.total}
    if match is None or int(match[1]) != partial.length or moved or other:
        partial.restart()
        raise _Again("the file changed on the server; beginning anew")
    partial.joined = True
    return total


def _passing(response: requests.Response, url: str, title: str) -> _Again | HostProblem:
    """What to make of an answer that says to come again."""
    status, where = response.status_code, host(url)
    pause = _asked_pause(response)
    if pause is not None and pause > _LONGEST_WAIT_ASKED:
        return HostProblem(
            f"{where} asks to wait {pause:.0f} seconds before {title} is fetched",
            "Try again then; what has arrived is kept.",
        )
    too_many = status == requests.codes.too_many_requests
    reason = "is asked too often" if too_many else f"has trouble (status {status})"
    return _Again(f"{where} {reason}", pause)


def _asked_pause(response: requests.Response) -> float | None:
    value = response.headers.get("Retry-After")
    try:
        return None if value is None else Retry().parse_retry_after(value)
    except InvalidHeader:
        return None


def _validator(response: requests.Response) -> str | None:
    """What names this version of the file: a strong ETag, else its date (RFC 9110, 13.1.5)."""
    tag = response.headers.get("ETag")
    if tag and not tag.startswith("W/"):
        return tag
    return response.headers.get("Last-Modified")


def _count(response: requests.Response) -> int | None:
    """The body's length in bytes as the server names it."""
    value = response.headers.get("Content-Length", "")
    return int(value) if value.isdecimal() else None


def _problem(wanted: Wanted, partial: Partial) -> str | None:
    """Why the whole file is not the wanted one, None when it is."""
    if wanted.sha256 is None:
        try:
            read(partial.path)
        except (BadGguf, ValueError) as error:
            return f"what {wanted.url} gives is no whole model: {error}"
        return None
    digest = partial.digest()
    if digest == wanted.sha256:
        return None
    return (
        f"{wanted.title} from {host(wanted.url)} has the wrong content: expected sha256 "
        f"{wanted.sha256}, got {digest}"
    )


def _given_up(title: str, url: str, failure: _Again, kept: int) -> HostProblem:
    left = f": {megabytes(kept)} of it are kept, and it goes on from there" if kept else ""
    return HostProblem(
        f"{title} could not be downloaded from {host(url)}: {failure}",
        f"Check the network and the proxy, and try again{left}.",
    )


def _reason(error: Exception) -> str:
    """The failure of a connection in a few words."""
    text = f"{type(error).__name__} {error}"
    if "NameResolution" in text or "getaddrinfo" in text:
        return "the server's name is not known"
    if "refused" in text:
        return "the connection was refused"
    if "timed out" in text.lower() or "Timeout" in text:
        return "no byte came for a while"
    return "the connection was lost"


def missing_bytes(file: ModelFile, folder: Path) -> int:
    """How many bytes of `file` the pull in `folder` still lacks; 0 when nobody knows its size."""
    return max(0, (file.size or 0) - partial_size(folder, stored_name(file)))


def as_curl(url: str, target: Path) -> tuple[str, ...]:
    """A command that downloads `url` as this module does, without the checks."""
    return ("curl", "--fail", "--location", "--continue-at", "-", "--output", str(target), url)
