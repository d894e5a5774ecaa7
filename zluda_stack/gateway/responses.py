"""OpenAI's Responses API: an answer that was cut off says so, and its events have their numbers.

llama.cpp's server calls every answer completed (builds 11434 to 11669, 2026-11-30), and does not
say what ended it. So an answer that is as long as was allowed counts as cut off; in the rare
case that the model ended with just that token too. It leaves out the numbers by which OpenAI's
own client puts a stream together, which then fails.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from zluda_stack.gateway.chat_events import ChatEvents
from zluda_stack.gateway.errors import invalid
from zluda_stack.gateway.events import events_of
from zluda_stack.gateway.failures import OtherShape

JsonObject = dict[str, Any]
_Struct = TypeVar("_Struct", bound=Struct)

_COMPLETED = b"event: response.completed\n"
_DATA = b"data: {"
_OF_THE_WHOLE = re.compile(rb"response\.(?:created|in_progress|completed|incomplete|failed)\n")
# The output item that an event is about.
_ITEM = re.compile(rb'"(?:item_id|id)":"((?:msg|rs|fc)_[^"]*)"')


class _Usage(Struct):
    output_tokens: int = 0


class _Response(Struct):
    usage: _Usage | None = None
    output: list[JsonObject] | None = None


class _Ended(Struct):
    response: msgspec.Raw


class _Request(Struct):
    max_output_tokens: int | None = None


def limit_of(content: bytes) -> int | None:
    """The most tokens that the request `content` allows for its answer. Raises Fault 400."""
    try:
        return msgspec.json.decode(content, type=_Request).max_output_tokens
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(content, error) from error


def told(response: bytes, limit: int | None) -> bytes:
    """`response`, a whole one, with its true status. Raises Fault."""
    return _incomplete(response) if _is_cut_off(response, limit) else response


class ResponseEvents(ChatEvents):
    """Edits one stream: the name of the model, errors, and the event that ends it."""

    def __init__(self, model: str, limit: int | None, request_id: str) -> None:
        super().__init__(model, request_id)
        self._limit = limit
        self._count = 0
        self._items: dict[bytes, int] = {}

    def feed(self, chunk: bytes) -> bytes:
        """What to send for `chunk`; always whole events. Raises Fault."""
        data = super().feed(chunk)
        if _COMPLETED in data:
            self._complete = True
            data = b"".join(map(self._ended, events_of(data)))
        return b"".join(map(self._numbered, events_of(data)))

    def _numbered(self, event: bytes) -> bytes:
        name, start, rest = event.partition(_DATA)
        if not name.startswith(b"event: response."):
            return event
        numbers = b'"sequence_number":%d,' % self._count
        self._count += 1
        if not _OF_THE_WHOLE.search(name):
            numbers += self._place_of(rest)
        return name + start + numbers + rest

    def _place_of(self, event: bytes) -> bytes:
        found = _ITEM.search(event)
        index = self._items.setdefault(found[1], len(self._items)) if found else 0
        return b'"output_index":%d,"content_index":0,' % index

    def _ended(self, event: bytes) -> bytes:
        if not event.startswith(_COMPLETED):
            return event
        data = event.partition(b"data: ")[2]
        response = bytes(_read(data, _Ended).response)
        if not _is_cut_off(response, self._limit):
            return event
        ended = {
            **msgspec.json.decode(data, type=dict[str, msgspec.Raw]),
            "type": "response.incomplete",
            "response": msgspec.Raw(_incomplete(response)),
        }
        return b"event: response.incomplete\ndata: %s\n\n" % msgspec.json.encode(ended)


def _is_cut_off(response: bytes, limit: int | None) -> bool:
    if limit is None:
        return False
    usage = _read(response, _Response).usage
    return usage is not None and usage.output_tokens >= limit


def _incomplete(response: bytes) -> bytes:
    whole = msgspec.json.decode(response, type=JsonObject)
    for item in (whole.get("output") or ())[-1:]:
        item["status"] = "incomplete"
    reason = {"reason": "max_output_tokens"}
    return msgspec.json.encode({**whole, "status": "incomplete", "incomplete_details": reason})


def _read(data: bytes, kind: type[_Struct]) -> _Struct:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise OtherShape from error
