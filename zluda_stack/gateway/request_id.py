"""The id of a request, by which whoever has its answer finds its line in the log."""

from __future__ import annotations

import os

from zluda_stack.gateway.headers import Headers


def new_id() -> str:
    """An id that no other request has."""
    return f"req_{os.urandom(12).hex()}"


def id_headers(request_id: str) -> Headers:
    """The headers of an answer that name it: Anthropic's clients read one, OpenAI's the other."""
    identity = request_id.encode()
    return [(b"request-id", identity), (b"x-request-id", identity)]
