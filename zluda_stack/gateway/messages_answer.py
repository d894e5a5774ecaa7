"""Answers POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from zluda_stack.gateway.backend import Backend
from zluda_stack.gateway.counting import counted, counted_while_waiting
from zluda_stack.gateway.exchange import Exchange
from zluda_stack.gateway.messages import MessagesRequest
from zluda_stack.gateway.models_answer import model_facts, served_name
from zluda_stack.gateway.streams import StreamedAnswer, whole_answer
from zluda_stack.gateway.translate_request import chat_request
from zluda_stack.gateway.ways import way_of

_COUNT = b"/v1/messages/count_tokens"
_TOKENIZE = b"/tokenize"  # vLLM's

_JSON = [(b"content-type", b"application/json")]

JsonObject = dict[str, Any]


async def answer_messages(exchange: Exchange, content: bytes, backend: Backend) -> None:
    """Let the model answer one message. Raises Fault."""
    request = MessagesRequest(content)
    body = await _edited(request, backend)
    way = way_of(request, body, exchange.request_id, openai_only=backend.openai_only)
    open_ = partial(backend.send, exchange, way.content, way.target)
    if request.stream:

        async def late() -> int:
            counting = _counted(exchange, request, body, backend)
            return await counted_while_waiting(exchange, backend, counting)

        await StreamedAnswer(exchange, way.editor, backend.patience).run(open_, late)
    else:
        status, headers, data = await whole_answer(exchange, open_())
        await exchange.respond(status, headers, msgspec.json.encode(way.message(data)))


async def count_tokens(exchange: Exchange, content: bytes, backend: Backend) -> None:
    """Tell how many tokens the model would read, by its own tokenizer. Raises Fault."""
    request = MessagesRequest(content)
    tokens = await _counted(exchange, request, await _edited(request, backend), backend)
    await exchange.respond(200, _JSON, msgspec.json.encode({"input_tokens": tokens}))


async def _edited(request: MessagesRequest, backend: Backend) -> JsonObject:
    sees_images = request.has_images and (await model_facts(backend)).sees_images
    body = request.edited(sees_images=sees_images)
    if backend.openai_only:
        body["model"] = await served_name(backend, request.model)
    return body


async def _counted(
    exchange: Exchange, request: MessagesRequest, body: JsonObject, backend: Backend
) -> int:
    if backend.openai_only:
        return await counted(exchange, backend, _to_tokenize(body), _TOKENIZE, "count")
    return await counted(exchange, backend, request.encoded(body), _COUNT)


def _to_tokenize(body: JsonObject) -> bytes:
    chat = chat_request(body, None)
    kept = {name: chat[name] for name in ("model", "messages", "tools") if name in chat}
    return msgspec.json.encode({**kept, "add_generation_prompt": True})
