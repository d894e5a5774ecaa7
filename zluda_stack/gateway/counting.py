"""How many tokens a prompt has, by the model server's own tokenizer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec

from zluda_stack.gateway.backend import Backend
from zluda_stack.gateway.errors import Fault
from zluda_stack.gateway.exchange import Exchange
from zluda_stack.gateway.models_answer import model_facts
from zluda_stack.gateway.refusals import too_long
from zluda_stack.gateway.streams import whole_answer

_SECONDS = 3.0
_TOKENIZE = b"/tokenize"
_TEMPLATE = b"/apply-template"
_OTHER_SHAPE = "the model server's count of tokens has another shape"


async def counted(exchange: Exchange, backend: Backend, content: bytes, target: bytes) -> int:
    """How many `input_tokens` the server tells of `content` at `target`. Raises Fault."""
    return _number(await _told(exchange, backend, content, target), "input_tokens")


async def counted_by_tokenizer(exchange: Exchange, backend: Backend, chat: bytes) -> int:
    """The tokens of `chat` on a server that speaks OpenAI's API only. Raises Fault.

    vLLM's tokenizer takes a chat. That of llama.cpp's server takes a text, and passes over a chat
    without a word; before November 2025 it counts in no other way.
    """
    told = await _told(exchange, backend, chat, _TOKENIZE)
    if "tokens" not in told or "count" in told:
        return _number(told, "count")
    prompt = (await _told(exchange, backend, chat, _TEMPLATE)).get("prompt")
    text = msgspec.json.encode({"content": prompt, "add_special": True})
    tokens = (await _told(exchange, backend, text, _TOKENIZE)).get("tokens")
    if not isinstance(tokens, list):
        raise Fault(502, _OTHER_SHAPE)
    return len(tokens)


async def _told(
    exchange: Exchange, backend: Backend, content: bytes, target: bytes
) -> dict[str, Any]:
    _, _, data = await whole_answer(exchange, backend.send(exchange, content, target))
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Fault(502, _OTHER_SHAPE) from error


def _number(told: dict[str, Any], field: str) -> int:
    try:
        return int(told[field])
    except (KeyError, TypeError, ValueError) as error:
        raise Fault(502, _OTHER_SHAPE) from error


async def counted_while_waiting(
    exchange: Exchange, backend: Backend, counting: Awaitable[int]
) -> int:
    """The tokens of a prompt whose answer is late; 0 when the server does not say.

    Raises Fault when they are too many: it is told now, not after the time in the queue.
    """
    try:
        tokens = await asyncio.wait_for(counting, _SECONDS)
        context = (await asyncio.wait_for(model_facts(backend), _SECONDS)).context
    except (Fault, asyncio.TimeoutError):
        return 0
    if context is not None and tokens >= context:
        raise too_long(exchange.dialect, tokens, context)
    return tokens
