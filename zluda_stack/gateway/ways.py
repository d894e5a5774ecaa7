"""By which request the model server is asked for a message, and how its answer is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from zluda_stack.gateway.failures import OtherShape
from zluda_stack.gateway.forced_tool import ForcedToolEvents, call_schema, forced, forced_message
from zluda_stack.gateway.message_events import MessageEvents, new_id, stop_of
from zluda_stack.gateway.messages import MessagesRequest
from zluda_stack.gateway.streams import StreamEditor
from zluda_stack.gateway.translate_answer import message_of
from zluda_stack.gateway.translate_events import TranslatedEvents
from zluda_stack.gateway.translate_request import chat_request

JsonObject = dict[str, Any]

_CHAT = b"/v1/chat/completions"


@dataclass(frozen=True)
class Way:
    """`content` goes to `target` (None: where the client sent it); `editor` tells the stream
    and `message` the whole answer that comes."""

    content: bytes
    target: bytes | None
    editor: StreamEditor
    message: Callable[[bytes], JsonObject]


def way_of(
    request: MessagesRequest, body: JsonObject, request_id: str, *, openai_only: bool
) -> Way:
    """The way of `request`, whose edited form is `body`. Raises Fault 400.

    llama.cpp's server speaks the client's dialect and is asked in it, except for what it would
    drop of it without a word.
    """
    choice = request.tool_choice if body.get("tools") else {}
    must_call = choice.get("type") in ("any", "tool")
    if must_call and not openai_only:
        return _forced(request, body, call_schema(body["tools"], choice))
    one_call = bool(choice.get("disable_parallel_tool_use"))
    no_call = choice.get("type") == "none"
    if openai_only or one_call or no_call or request.schema is not None:
        return _translated(request, body, one_call=one_call)
    return Way(
        content=request.encoded(body),
        target=None,
        editor=MessageEvents(request.model, request.stop_sequences, request_id),
        message=partial(_renamed, request.model, request.stop_sequences),
    )


def _forced(request: MessagesRequest, body: JsonObject, schema: JsonObject) -> Way:
    asked = (request.model, request.stop_sequences)
    return Way(
        content=msgspec.json.encode(forced(chat_request(body, None), schema)),
        target=_CHAT,
        editor=ForcedToolEvents(*asked),
        message=lambda answer: forced_message(answer, *asked),
    )


def _translated(request: MessagesRequest, body: JsonObject, *, one_call: bool) -> Way:
    asked = (request.model, request.stop_sequences)
    return Way(
        content=msgspec.json.encode(chat_request(body, request.schema)),
        target=_CHAT,
        editor=TranslatedEvents(*asked, one_call=one_call),
        message=lambda answer: message_of(answer, *asked, one_call=one_call),
    )


def _renamed(model: str, stop_sequences: tuple[str, ...], answer: bytes) -> JsonObject:
    try:
        message = msgspec.json.decode(answer, type=JsonObject)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise OtherShape from error
    message.update(stop_of(message, stop_sequences))
    return {**message, "id": new_id(), "model": model or message.get("model")}
