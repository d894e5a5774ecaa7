"""Answers the requests of OpenAI's APIs that make text."""

from __future__ import annotations

from functools import partial

import msgspec

from zluda_stack.gateway import infill, responses
from zluda_stack.gateway.backend import Backend
from zluda_stack.gateway.chat_events import ChatEvents
from zluda_stack.gateway.counting import counted, counted_while_waiting
from zluda_stack.gateway.exchange import Exchange
from zluda_stack.gateway.models_answer import served_name
from zluda_stack.gateway.openai_request import OpenAIRequest, renamed
from zluda_stack.gateway.streams import StreamedAnswer, StreamEditor, whole_answer

# Where llama.cpp's server counts the tokens of a prompt.
_COUNTERS = {
    "/v1/chat/completions": b"/v1/chat/completions/input_tokens",
    "/v1/responses": b"/v1/responses/input_tokens",
}


async def answer_chat(exchange: Exchange, content: bytes, backend: Backend) -> None:
    """Let the model answer a chat, or continue a text. Raises Fault."""
    request = OpenAIRequest(content)
    asked = request.content_for(await served_name(backend, request.model))
    if request.stream:
        editor = ChatEvents(request.model, exchange.request_id)
        await _streamed(exchange, asked, backend, editor)
    else:
        status, headers, data = await whole_answer(exchange, backend.send(exchange, asked))
        await exchange.respond(status, headers, renamed(data, request.model))


async def answer_completion(exchange: Exchange, content: bytes, backend: Backend) -> None:
    """Let the model continue a text, or fill a gap in one. Raises Fault."""
    filling = None if backend.openai_only else infill.infill_request(content)
    if filling is None:
        await answer_chat(exchange, content, backend)
        return
    request = OpenAIRequest(content)
    if request.stream:
        editor = infill.InfillEvents(request.model)
        await _streamed(exchange, filling, backend, editor, infill.INFILL)
    else:
        open_ = backend.send(exchange, filling, infill.INFILL)
        status, headers, data = await whole_answer(exchange, open_)
        told = infill.completion_of(data, request.model)
        await exchange.respond(status, headers, msgspec.json.encode(told))


async def answer_response(exchange: Exchange, content: bytes, backend: Backend) -> None:
    """Let the model answer a request of the Responses API. Raises Fault."""
    request, limit = OpenAIRequest(content), responses.limit_of(content)
    if request.stream:
        editor = responses.ResponseEvents(request.model, limit, exchange.request_id)
        await _streamed(exchange, request.content, backend, editor)
    else:
        open_ = backend.send(exchange, request.content)
        status, headers, data = await whole_answer(exchange, open_)
        told = renamed(responses.told(data, limit), request.model)
        await exchange.respond(status, headers, told)


async def _streamed(
    exchange: Exchange,
    content: bytes,
    backend: Backend,
    editor: StreamEditor,
    target: bytes | None = None,
) -> None:
    async def late() -> int:
        counter = _COUNTERS.get(exchange.path)
        if counter is None or backend.openai_only:
            return 0
        counting = counted(exchange, backend, content, counter)
        return await counted_while_waiting(exchange, backend, counting)

    open_ = partial(backend.send, exchange, content, target)
    await StreamedAnswer(exchange, editor, backend.patience).run(open_, late)
