"""Answers POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec

from zluda_stack.gateway.backend import Backend
from zluda_stack.gateway.errors import Dialect, Fault
from zluda_stack.gateway.exchange import Exchange
from zluda_stack.gateway.messages import MessagesRequest
from zluda_stack.gateway.models_answer import model_facts, served_name
from zluda_stack.gateway.refusals import too_long
from zluda_stack.gateway.streams import StreamedAnswer, whole_answer
from zluda_stack.gateway.translate_request import chat_request
from zluda_stack.gateway.ways import way_of

_COUNT_SECONDS = 3.0
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
        late = partial(_counted_while_waiting, exchange, request, body, backend)
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
        asked, target, field = _to_tokenize(body), _TOKENIZE, "count"
    else:
        asked, target, field = request.encoded(body), _COUNT, "input_tokens"
    _, _, data = await whole_answer(exchange, backend.send(exchange, asked, target))
    try:
        return int(msgspec.json.decode(data, type=JsonObject)[field])
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise Fault(502, "the model server's count of tokens has another shape") from error


def _to_tokenize(body: JsonObject) -> bytes:
    chat = chat_request(body, None)
    kept = {name: chat[name] for name in ("model", "messages", "tools") if name in chat}
    return msgspec.json.encode({**kept, "add_generation_prompt": True})


async def _counted_while_waiting(
    exchange: Exchange, request: MessagesRequest, body: JsonObject, backend: Backend
) -> int:
    """The tokens of a prompt whose answer is late; 0 when the server does not say.

    Raises Fault when they are too many: it is told now, not after the time in the queue.
    """
    try:
        counting = _counted(exchange, request, body, backend)
        tokens = await asyncio.wait_for(counting, _COUNT_SECONDS)
        context = (await model_facts(backend)).context
    except (Fault, asyncio.TimeoutError):
        return 0
    if context is not None and tokens >= context:
        raise too_long(Dialect.ANTHROPIC, tokens, context)
    return tokens
