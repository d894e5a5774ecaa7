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
from zluda_stack.gateway.failures import OtherShape

# What the server says when it fails itself; every other 500 is its word on the request.
_SERVERS_OWN = re.compile(
    r"compute error|invalid input batch|context size has been exceeded|bad_alloc|out of memory|^$",
    re.IGNORECASE,
)

# How it told so in 2025, without numbers.
_TOO_LONG = "the request exceeds the available context size"

# The options that its refusals name, and what it does with them.
_STARTED_FOR = {"--embeddings": "embeddings", "--reranking": "reranking"}


class _Error(Struct):
    message: str = ""
    type: str = ""
    n_prompt_tokens: int | None = None
    n_ctx: int | None = None


class _Answer(Struct):
    error: _Error


def fault_of(dialect: Dialect, status: int, answer: bytes) -> Fault:
    """The fault to tell a caller of `dialect` for an `answer` that is not the one asked for."""
    if status < HTTPStatus.BAD_REQUEST:
        return OtherShape()
    error = _read(answer)
    long = _of_length(dialect, error)
    if long is not None:
        return long
    if status == HTTPStatus.INTERNAL_SERVER_ERROR and not _SERVERS_OWN.search(error.message):
        return Fault(400, error.message)
    if status == HTTPStatus.NOT_IMPLEMENTED:  # clients repeat what is answered with 5xx
        return Fault(400, _not_started_for(error.message) or error.message)
    if status == HTTPStatus.NOT_FOUND:
        return Fault(404, "there is nothing at this path", code="not_found")
    return Fault(status, error.message or f"the model server answered HTTP {status}")


def too_long(dialect: Dialect, tokens: int, context: int) -> Fault:
    """The fault of a prompt of `tokens` for a model of `context` tokens.

    In the words and with the code by which Claude Code, and the clients of OpenAI's API, know
    that they have to shorten the conversation.
    """
    if dialect is Dialect.ANTHROPIC:
        return Fault(400, f"prompt is too long: {tokens} tokens > {context} maximum")
    return Fault(
        400,
        f"This model's maximum context length is {context} tokens. However, your messages "
        f"resulted in {tokens} tokens. Please reduce the length of the messages.",
        code="context_length_exceeded",
    )


def _of_length(dialect: Dialect, error: _Error) -> Fault | None:
    """The fault of a prompt that is too long, also where the server does not say by how much."""
    if error.n_prompt_tokens is not None and error.n_ctx is not None:
        return too_long(dialect, error.n_prompt_tokens, error.n_ctx)
    if not error.message.startswith(_TOO_LONG):
        return None
    if dialect is Dialect.ANTHROPIC:
        return Fault(400, "prompt is too long for the context of the model")
    told = "This model's maximum context length is exceeded. Please shorten the messages."
    return Fault(400, told, code="context_length_exceeded")


def _not_started_for(message: str) -> str | None:
    """`message` for who did not start the server, when it names the option to start it with."""
    for option, what in _STARTED_FOR.items():
        if option in message:
            return f"the model server was started for chat, and does no {what}"
    return None


def _read(answer: bytes) -> _Error:
    try:
        return msgspec.json.decode(answer, type=_Answer).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _Error()
