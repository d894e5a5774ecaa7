"""Which headers pass from one side to the other."""

from __future__ import annotations

from collections.abc import Iterable

from zluda_stack.gateway.errors import Fault

Headers = list[tuple[bytes, bytes]]

# RFC 9110, section 7.6.1, and what each hop sets or has answered itself.
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_OWN_RESPONSE_HEADERS = frozenset({b"date", b"server", b"request-id", b"x-request-id"})
_DROPPED = _HOP_BY_HOP | _OWN_RESPONSE_HEADERS


def require_plain(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raises Fault 415 for a body that is compressed: a small one could become any size."""
    coding = dict(headers).get(b"content-encoding", b"").strip().lower()
    if coding not in (b"", b"identity"):
        told = coding[:20].decode("ascii", "replace")
        raise Fault(415, f"content-encoding {told} is not taken here: send the body as it is")


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """`headers` (lower-case names) without those that concern one connection only."""
    headers = list(headers)
    dropped = _DROPPED
    for name, value in headers:
        if name == b"connection":
            dropped |= {token.strip().lower() for token in value.split(b",")}
    # Which web pages may read an answer is the endpoint's own to say; see cors.py.
    return [
        (name, value)
        for name, value in headers
        if name not in dropped and not name.startswith(b"access-control-")
    ]
