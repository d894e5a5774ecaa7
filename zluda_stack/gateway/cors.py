"""Which web pages may call the endpoint from a browser: none, unless their origin was named.

Browsers enforce it (https://fetch.spec.whatwg.org/#http-cors-protocol); other clients send no
origin. The key is asked for either way, but for the browser's own question beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable

from zluda_stack.gateway.headers import Headers

_DAY = b"86400"


class Cors:
    """The origins that are let in, like https://chat.example.org, or * for all."""

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)

    def headers(self, asked: Headers) -> Headers:
        """What an answer to a request with the headers `asked` carries; nothing by default."""
        if not self._origins:
            return []
        vary = (b"vary", b"origin")
        origin = dict(asked).get(b"origin")
        if origin is None or not self._origins & {origin, b"*"}:
            return [vary]
        exposed = (b"access-control-expose-headers", b"request-id, x-request-id, retry-after")
        return [vary, (b"access-control-allow-origin", origin), exposed]

    def preflight(self, method: str, asked: Headers) -> Headers | None:
        """The answer to a browser that asks before its request; None for any other request."""
        if method != "OPTIONS":
            return None
        wanted = dict(asked)
        if b"access-control-request-method" not in wanted:
            return None
        if len(self.headers(asked)) <= 1:
            return None
        allowed = wanted.get(b"access-control-request-headers", b"")
        return [
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", allowed),
            (b"access-control-max-age", _DAY),
        ]
