"""The model server's own errors, as a client of either dialect must get them.

How llama.cpp words them was measured on 2026-11-30 with the pinned server: it answers 500 to
many a request that can never succeed, and clients repeat those for minutes.
"""

from __future__ import annotations

import re
from http import HTTPStatus

import msgspec
from msgspec import Struct

from zluda_stack.gateway.errors import Dialect, Fault

# What the server says when it fails itself; every other 500 is its word on the request.
_SERVERS_OWN = re.compile(
    r"compute error|invalid input batch|context size has been exceeded|bad_alloc|out of memory|^$",
    re.IGNORECASE,
)


class _Error(Struct):
    message: str = ""
    type: str = ""
    n_prompt_tokens: int | None = None
    n_ctx: int | None = None


class _Answer(Struct):
    error: _Error


def fault_of(dialect: Dialect, status: int, answer: bytes) -> Fault | None:
    """The fault to tell instead of an error `answer` of the model server.

    None when the answer can go to a caller of `dialect` as it is: llama.cpp words errors as
    OpenAI does.
    """
    error = _read(answer)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR and not _SERVERS_OWN.search(error.message):
        return Fault(400, error.message)
    if dialect is Dialect.OPENAI:
        return None
    if error.n_prompt_tokens is not None and error.n_ctx is not None:
        # In the words by which Claude Code knows that it has to compact.
        return Fault(
            400, f"prompt is too long: {error.n_prompt_tokens} tokens > {error.n_ctx} maximum"
        )
    return Fault(status, error.message or f"the model server answered HTTP {status}")


def _read(answer: bytes) -> _Error:
    try:
        return msgspec.json.decode(answer, type=_Answer).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _Error()
