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


async def counted(
    exchange: Exchange, backend: Backend, content: bytes, target: bytes, field: str = "input_tokens"
) -> int:
    """The number in `field` of what the server answers to `content` at `target`. Raises Fault."""
    _, _, data = await whole_answer(exchange, backend.send(exchange, content, target))
    try:
        return int(msgspec.json.decode(data, type=dict[str, Any])[field])
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise Fault(502, "the model server's count of tokens has another shape") from error


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
