"""Completions between a prefix and a suffix, for editors that complete code.

OpenAI's /v1/completions has them by `suffix`, which llama.cpp's server passes over without a
word; its own /infill has them under other names (its README, build 11669, read 2026-11-30).
"""

from __future__ import annotations

import secrets
import time
from typing import Any

import msgspec
from msgspec import Struct

from zluda_stack.gateway.chat_events import OpenAiEvents
from zluda_stack.gateway.errors import INCOMPLETE, Fault, invalid
from zluda_stack.gateway.failures import OtherShape

INFILL = b"/infill"

JsonObject = dict[str, Any]

_SAME = ("temperature", "top_p", "top_k", "stop", "seed", "stream", "cache_prompt")
_DEFAULT_TOKENS = 128


class _Completion(Struct):
    """A completion with a suffix, as far as it must have its types."""

    prompt: str
    suffix: str
    max_tokens: int | None = None


class _Filled(Struct):
    content: str = ""
    stop: bool = False
    stop_type: str = "none"
    tokens_evaluated: int = 0
    tokens_predicted: int = 0
    error: JsonObject | None = None


def infill_request(content: bytes) -> bytes | None:
    """The request for /infill, None when `content` asks for no suffix. Raises Fault 400."""
    try:
        body = msgspec.json.decode(content, type=JsonObject)
        if not body.get("suffix"):
            return None
        asked = msgspec.convert(body, _Completion)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(content, error) from error
    filling = {
        "input_prefix": asked.prompt,
        "input_suffix": asked.suffix,
        "n_predict": asked.max_tokens or _DEFAULT_TOKENS,
        **{name: body[name] for name in _SAME if name in body},
    }
    return msgspec.json.encode(filling)


def completion_of(answer: bytes, model: str) -> JsonObject:
    """The completion for a client that asked for `model`. Raises Fault."""
    filled = _read(answer)
    return {**_completion(filled, f"cmpl-{secrets.token_hex(12)}", model), **_usage(filled)}


class InfillEvents(OpenAiEvents):
    """The stream of /infill as one of /v1/completions."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self._model = model
        self._id = f"cmpl-{secrets.token_hex(12)}"

    def feed(self, chunk: bytes) -> bytes:
        """What to send for `chunk`; always whole events. Raises Fault."""
        lines = self._events.feed(chunk).splitlines()
        return b"".join(self._told(line[5:]) for line in lines if line.startswith(b"data:"))

    def rest(self) -> bytes:
        """The last event. Raises Fault when the server stopped before its answer did."""
        if not self._complete:
            raise Fault(502, INCOMPLETE)
        return b"data: [DONE]\n\n"

    def _told(self, data: bytes) -> bytes:
        filled = _read(data)
        self._complete = self._complete or filled.stop
        told = _completion(filled, self._id, self._model)
        return b"data: %s\n\n" % msgspec.json.encode(told)


def _read(data: bytes) -> _Filled:
    try:
        filled = msgspec.json.decode(data, type=_Filled)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise OtherShape from error
    if filled.error is not None:
        raise Fault(502, str(filled.error.get("message", INCOMPLETE)))
    return filled


def _completion(filled: _Filled, identity: str, model: str) -> JsonObject:
    reason = ("length" if filled.stop_type == "limit" else "stop") if filled.stop else None
    choice = {"text": filled.content, "index": 0, "logprobs": None, "finish_reason": reason}
    return {
        "id": identity,
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
    }


def _usage(filled: _Filled) -> JsonObject:
    read, made = filled.tokens_evaluated, filled.tokens_predicted
    usage = {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}
    return {"usage": usage}
