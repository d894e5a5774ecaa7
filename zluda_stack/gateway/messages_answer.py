"""Answers POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import msgspec

from zluda_stack.gateway.backend import Backend
from zluda_stack.gateway.counting import (
    counted,
    counted_by_tokenizer,
    counted_while_waiting,
)
from zluda_stack.gateway.exchange import Exchange
from zluda_stack.gateway.messages import MessagesRequest
from zluda_stack.gateway.models_answer import model_facts, served_name
from zluda_stack.gateway.streams import StreamedAnswer, whole_answer
from zluda_stack.gateway.ways import Way, way_of

_COUNT = b"/v1/messages/count_tokens"
_COUNT_CHAT = b"/v1/chat/completions/input_tokens"

_JSON = [(b"content-type", b"application/json")]

JsonObject = dict[str, Any]


async def answer_messages(exchange: Exchange, content: bytes, backend: Backend) -> None:
    """Let the model answer one message. Raises Fault."""
    asked = await _asked(exchange, content, backend)
    del content  # hundreds of requests can wait here: each with one copy of its prompt
    way = asked.way
    open_ = partial(backend.send, exchange, way.content, way.target)
    if asked.stream:

        async def late() -> int:
            counting = _counted(exchange, way, backend)
            return await counted_while_waiting(exchange, backend, counting)

        await StreamedAnswer(exchange, way.editor, backend.patience).run(open_, late)
    else:
        status, headers, data = await whole_answer(exchange, open_())
        await exchange.respond(status, headers, msgspec.json.encode(way.message(data)))


async def count_tokens(exchange: Exchange, content: bytes, backend: Backend) -> None:
    """Tell how many tokens the model would read, by its own tokenizer. Raises Fault."""
    tokens = await _counted(exchange, (await _asked(exchange, content, backend)).way, backend)
    await exchange.respond(200, _JSON, msgspec.json.encode({"input_tokens": tokens}))


class _Asked(NamedTuple):
    stream: bool
    way: Way


async def _asked(exchange: Exchange, content: bytes, backend: Backend) -> _Asked:
    """What is asked of the model server for the request `content`. Raises Fault."""
    request = MessagesRequest(content)
    sees_images = request.has_images and (await model_facts(backend)).sees_images
    body = request.edited(sees_images=sees_images)
    if backend.openai_only:
        body["model"] = await served_name(backend, request.model)
    way = way_of(request, body, exchange.request_id, openai_only=backend.openai_only)
    return _Asked(request.stream, way)


async def _counted(exchange: Exchange, way: Way, backend: Backend) -> int:
    if backend.openai_only:
        return await counted_by_tokenizer(exchange, backend, _to_tokenize(way.content))
    return await counted(
        exchange, backend, way.content, _COUNT if way.target is None else _COUNT_CHAT
    )


def _to_tokenize(content: bytes) -> bytes:
    chat = msgspec.json.decode(content, type=JsonObject)
    kept = {name: chat[name] for name in ("model", "messages", "tools") if name in chat}
    return msgspec.json.encode({**kept, "add_generation_prompt": True})
