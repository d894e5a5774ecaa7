"""Errors in the caller's own dialect, as a whole answer and as an event of a stream.

Shapes: Anthropic's "Errors" page and OpenAI's "Error codes" page, read 2026-11-30; the official
Python clients raise their typed exceptions from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import Enum

INCOMPLETE = "the model server stopped in the middle of this answer"


class Dialect(Enum):
    """Whose API a request speaks."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"

    @classmethod
    def of(cls, path: str, headers: Iterable[tuple[bytes, bytes]]) -> Dialect:
        """The dialect of a request: Anthropic's for /v1/messages and all below it, and for any
        other path when the header is there that only Anthropic's clients send."""
        anthropic = path == "/v1/messages" or path.startswith("/v1/messages/")
        declared = any(name == b"anthropic-version" for name, _ in headers)
        return cls.ANTHROPIC if anthropic or declared else cls.OPENAI


class Fault(Exception):
    """An answer that the endpoint itself gives instead of the model server's.

    `retry_after` is in how many seconds the same request may succeed, None when nobody knows;
    `code` what OpenAI's clients know this error by, when the status does not say it; `allow` the
    methods that the path takes.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        retry_after: int | None = None,
        code: str | None = None,
        allow: str | None = None,
    ) -> None:
        super().__init__(message)
        self.allow = allow
        self.code = code
        self.status = status
        self.message = message
        self.retry_after = retry_after


def invalid(content: bytes, error: Exception) -> Fault:
    """The fault of a request whose body `content` is not what it must be."""
    if not content.strip():
        return Fault(400, "the request has no body")
    if isinstance(error, UnicodeDecodeError):
        return Fault(400, f"the request is not UTF-8 text: {error.reason} (byte {error.start})")
    return Fault(400, f"the request is not valid: {error}")


_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_OPENAI_TYPES = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    405: ("invalid_request_error", "method_not_allowed"),
    413: ("invalid_request_error", "request_too_large"),
    415: ("invalid_request_error", "unsupported_media_type"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("server_error", "model_unavailable"),
}


def body(dialect: Dialect, fault: Fault, request_id: str) -> bytes:
    """The JSON that tells `fault` to a caller of `dialect`."""
    if dialect is Dialect.ANTHROPIC:
        kind = _ANTHROPIC_TYPES.get(fault.status, "api_error")
        return _json(
            {
                "type": "error",
                "error": {"type": kind, "message": fault.message},
                "request_id": request_id,
            }
        )
    kind, code = _OPENAI_TYPES.get(fault.status, ("server_error", None))
    told = {"message": fault.message, "type": kind, "param": None, "code": fault.code or code}
    return _json({"error": told})


def event(dialect: Dialect, fault: Fault, request_id: str) -> bytes:
    """The server-sent event that ends a stream of `dialect` with `fault`."""
    data = b"data: " + body(dialect, fault, request_id) + b"\n\n"
    return b"event: error\n" + data if dialect is Dialect.ANTHROPIC else data


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
