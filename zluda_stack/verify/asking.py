"""Asks an endpoint what a client would ask, and tells where the answer breaks the protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from zluda_stack.plan.types import EndpointPlan
from zluda_stack.tls import trusting

JsonObject = dict[str, Any]

_TIMEOUT_SECONDS = (5, 600)
_ANTHROPIC = {"anthropic-version": "2023-06-01"}


class Wrong(Exception):
    """The answer breaks the protocol; the text says where."""


class Refused(Wrong):
    """The endpoint answered with an error; `status` is that of HTTP."""

    def __init__(self, status: int, told: str) -> None:
        super().__init__(f"HTTP {status}: {told[:500]}")
        self.status = status


def require(condition: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as an assertion
    """Raises Wrong with the text `otherwise` unless `condition` holds."""
    if not condition:
        raise Wrong(otherwise)


def attempt(ask: Callable[[], str]) -> tuple[str, str]:
    """What `ask` returns and "", or "" and what is wrong with the answer that it got."""
    try:
        return ask(), ""
    except Wrong as wrong:
        return "", str(wrong)
    except requests.RequestException as error:
        return "", f"no answer: {type(error).__name__}"
    except (KeyError, IndexError, TypeError, ValueError) as error:
        return "", f"the answer has another shape: {error!r}"


class _Named(HTTPAdapter):
    """Connects to an address, and expects the certificate of `endpoint` for the name of it."""

    def __init__(self, endpoint: EndpointPlan, certificate: str) -> None:
        self._name = endpoint.server_name
        self._context = trusting(certificate)
        super().__init__()

    def init_poolmanager(
        self,
        connections: int,
        maxsize: int,
        block: bool = False,  # noqa: FBT001, FBT002 - as it is called
        **options: Any,  # noqa: ANN401 - as it is declared
    ) -> None:
        """Let every connection know of the certificate."""
        options |= {"server_hostname": self._name, "assert_hostname": self._name}
        super().init_poolmanager(connections, maxsize, block, ssl_context=self._context, **options)


def session_with(endpoint: EndpointPlan) -> requests.Session:
    """For requests to `endpoint` at its local URL. Raises OSError for a certificate that is gone.

    Nothing of the user's environment counts: no proxy and no .netrc may come between.
    """
    session = requests.Session()
    session.trust_env = False
    if endpoint.tls is not None:
        session.mount("https://", _Named(endpoint, endpoint.tls.certificate))
    return session


class Asker:
    """Sends requests with the key to one endpoint.

    Raises Refused for an error, Wrong for an answer of another kind than was asked for, and
    requests.RequestException when there is none.
    """

    def __init__(self, session: requests.Session, url: str, key: str, model: str) -> None:
        self._session = session
        self._url = url
        self._key = key
        self.model = model

    def ask(self, path: str, body: JsonObject) -> JsonObject:
        """The JSON object that `path` answers with."""
        return _object(self._send("POST", path, body, _ANTHROPIC))

    def look(self, path: str) -> JsonObject:
        """The JSON object at `path`, in OpenAI's shape."""
        return _object(self._send("GET", path, None, {}))

    def events(self, path: str, body: JsonObject) -> Iterator[tuple[str | None, str]]:
        """(event name or None, data) of each server-sent event that `path` answers with."""
        response = self._send("POST", path, {"stream": True, **body}, _ANTHROPIC)
        kind = response.headers.get("content-type", "")
        require(kind.startswith("text/event-stream"), f"a stream was asked for, {kind} came")
        name: str | None = None
        for raw in response.iter_lines(chunk_size=None):
            field, _, value = raw.decode().partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                yield name, value
                name = None

    def _send(
        self, method: str, path: str, body: JsonObject | None, headers: dict[str, str]
    ) -> requests.Response:
        response = self._session.request(
            method,
            self._url + path,
            json=None if body is None else {"model": self.model, **body},
            headers={"Authorization": f"Bearer {self._key}", **headers},
            stream=True,
            timeout=_TIMEOUT_SECONDS,
        )
        if not response.ok:
            raise Refused(response.status_code, response.text)
        return response


def _object(response: requests.Response) -> JsonObject:
    answer = response.json()
    if not isinstance(answer, dict):
        raise Wrong("the answer is not a JSON object")
    return answer
