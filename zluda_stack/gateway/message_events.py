"""The event stream of Anthropic's Messages API, from llama.cpp's server to the client.

Only its first event and its last ones are read; whatever is between passes as it is. The
server leaves `message_start` out when the first token is part of a character, has no stop_reason
for a stop sequence, and words an error as OpenAI does (builds 11434 to 11669, 2026-11-30).
"""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from zluda_stack.gateway import errors
from zluda_stack.gateway.errors import INCOMPLETE, Dialect, Fault
from zluda_stack.gateway.events import WholeEvents, events_of
from zluda_stack.gateway.failures import OtherShape
from zluda_stack.gateway.refusals import fault_of

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_START = b"event: message_start\n"
_DELTA = b"event: message_delta\n"
_STOP = b"event: message_stop\n"
_ERROR = b"event: error\n"

JsonObject = dict[str, Any]


class MessageEvents:
    """Edits one stream. `model` is the name that the client asked for, "" for the server's."""

    ping = PING

    def __init__(self, model: str, stop_sequences: tuple[str, ...], request_id: str) -> None:
        self._model = model
        self._stop_sequences = stop_sequences
        self._request_id = request_id
        self._events = WholeEvents()
        self._begun = False
        self._settled = False  # the place of message_start is behind us
        self._complete = False
        self._usage: JsonObject = {}

    @property
    def complete(self) -> bool:
        """True once the last event has passed."""
        return self._complete

    def begin(self, input_tokens: int) -> bytes:
        """An own message_start; the server's is dropped when it comes."""
        self._begun = True
        self._usage = {"input_tokens": input_tokens}
        return message_start(self._model, self._usage)

    def feed(self, chunk: bytes) -> bytes:
        """What to send for `chunk`; always whole events. Raises Fault."""
        data = self._events.feed(chunk)
        if not self._settled and data:
            data = self._head(data)
        if _STOP in data or _ERROR in data:
            self._complete = True
        if _DELTA in data or _ERROR in data:
            data = b"".join(map(self._tail, events_of(data)))
        return data

    def rest(self) -> bytes:
        """What to send at the end. Raises Fault when the server stopped before its answer did."""
        if not self._complete:
            raise Fault(502, INCOMPLETE)
        return self._events.rest()

    def _head(self, data: bytes) -> bytes:
        while data.startswith(b":"):  # a comment
            _, _, data = data.partition(b"\n\n")
        if not data or data.startswith(_ERROR):
            return data
        self._settled = True
        if not data.startswith(_START):
            return data if self._begun else self.begin(0) + data
        first, end, others = data.partition(b"\n\n")
        event = _data_of(first)
        message = _object_in(event, "message")
        self._usage = _object_in(message, "usage")
        if self._begun:
            return others
        message["id"] = new_id()
        if self._model:
            message["model"] = self._model
        return _START + b"data: " + msgspec.json.encode(event) + end + others

    def _tail(self, event: bytes) -> bytes:
        if event.startswith(_DELTA):
            told = _data_of(event)
            delta = _object_in(told, "delta")
            told["delta"] = {**delta, **stop_of(delta, self._stop_sequences)}
            told["usage"] = {**self._usage, **_object_in(told, "usage")}
            return sse(told)
        if event.startswith(_ERROR):
            fault = fault_of(Dialect.ANTHROPIC, 500, b'{"error":%s}' % _line(event))
            return errors.event(Dialect.ANTHROPIC, fault, self._request_id)
        return event


def message_start(model: str, usage: JsonObject) -> bytes:
    """The event with which a stream begins."""
    message: JsonObject = {
        "id": new_id(),
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": model,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0, **usage},
    }
    return sse({"type": "message_start", "message": message})


def new_id() -> str:
    """An id for a message, in Anthropic's form; llama.cpp's server gives it that of OpenAI's."""
    return f"msg_{secrets.token_hex(12)}"


def stop_of(told: JsonObject, stop_sequences: tuple[str, ...]) -> JsonObject:
    """stop_reason and stop_sequence of an answer of llama.cpp's server.

    The server names the sequence but not the reason, and names the template's own as well.
    """
    if told.get("stop_sequence") in stop_sequences:
        return {"stop_reason": "stop_sequence", "stop_sequence": told["stop_sequence"]}
    return {"stop_reason": told.get("stop_reason"), "stop_sequence": None}


def sse(event: JsonObject) -> bytes:
    """`event` as a server-sent event named after its type."""
    kind = str(event["type"]).encode()
    return b"event: %s\ndata: %s\n\n" % (kind, msgspec.json.encode(event))


def _line(event: bytes) -> bytes:
    return event.partition(b"data: ")[2].strip()


def _data_of(event: bytes) -> JsonObject:
    try:
        return msgspec.json.decode(_line(event), type=JsonObject)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise OtherShape("stream") from error


def _object_in(told: JsonObject, name: str) -> JsonObject:
    """The object `name` of what was told, {} when it is left out. Raises Fault."""
    value = told.get(name) or {}
    if not isinstance(value, dict):
        raise OtherShape("stream")
    return value
