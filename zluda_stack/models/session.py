"""One HTTP session for everything that is fetched: where a redirect may lead, and who gets a token.

requests brings the user's proxy, REQUESTS_CA_BUNDLE and netrc. It takes the Authorization header
away when a redirect leaves the host; that a redirect never leaves TLS, and that SSL_CERT_FILE
counts, is seen to here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.auth import AuthBase

from zluda_stack import __version__

_MOST_REDIRECTS = 10
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


class InsecureRedirect(requests.RequestException):
    """A server behind TLS named a place without it."""


class Bearer(AuthBase):
    """A token for the host of the first request; netrc does not replace it."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Put the token into the request."""
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class Session(requests.Session):
    """A session that follows few redirects, and none from https to anything else."""

    def __init__(self) -> None:
        super().__init__()
        self.max_redirects = _MOST_REDIRECTS
        self.headers["User-Agent"] = f"zluda-stack/{__version__}"

    def merge_environment_settings(
        self,
        url: str | bytes | None,
        proxies: Any,  # noqa: ANN401  # as requests types them
        stream: bool | None,  # noqa: FBT001
        verify: Any,  # noqa: ANN401
        cert: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """What requests takes of the environment, and the file that OpenSSL's programs trust."""
        merged = super().merge_environment_settings(url, proxies, stream, verify, cert)
        trusted = os.environ.get("SSL_CERT_FILE", "")
        if merged["verify"] is True and Path(trusted).is_file():
            merged["verify"] = trusted
        return merged

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Where `resp` leads, None when it is no redirect. Raises InsecureRedirect."""
        target = super().get_redirect_target(resp)
        if target is None:
            return None
        scheme = urlsplit(urljoin(resp.url, target)).scheme
        if scheme != "https" and urlsplit(resp.url).scheme == "https":
            raise InsecureRedirect(f"{host(resp.url)} leads from https to {scheme}")
        return target


def host(url: str) -> str:
    """The host that `url` names, with its port, for people."""
    return urlsplit(url).netloc.rpartition("@")[2]


def is_private(url: str) -> bool:
    """True when nobody between here and the server of `url` can read or change what is sent."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in _LOOPBACK
