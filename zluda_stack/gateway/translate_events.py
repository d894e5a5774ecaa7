"""A stream of OpenAI's Chat Completions API as one of Anthropic's Messages API."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec
from msgspec import Struct

from zluda_stack.gateway.errors import INCOMPLETE, Dialect, Fault
from zluda_stack.gateway.events import WholeEvents
from zluda_stack.gateway.failures import OtherShape
from zluda_stack.gateway.message_events import PING, message_start, sse
from zluda_stack.gateway.refusals import fault_of
from zluda_stack.gateway.translate_answer import Said, ToolCall, Usage, stop_of

JsonObject = dict[str, Any]


class _Choice(Struct):
    delta: Said = msgspec.field(default_factory=Said)
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class _Chunk(Struct):
    choices: list[_Choice] = []
    usage: Usage | None = None
    error: JsonObject | None = None


class TranslatedEvents:
    """Translates one stream; `one_call` leaves out every tool call but the first.

    Blocks of Anthropic's stream follow one another: a block ends when another kind of content,
    or another tool call, begins.
    """

    ping = PING

    def __init__(self, model: str, stop_sequences: tuple[str, ...], *, one_call: bool) -> None:
        self._model = model
        self._stop_sequences = stop_sequences
        self._one_call = one_call
        self._events = WholeEvents()
        self._begun = False
        self._index = -1
        self._open: str | int | None = None  # the kind of the open block, or its tool call
        self._stop: JsonObject | None = None
        self._usage = Usage()
        self._cut = False  # calls were left out
        self._done = False

    @property
    def complete(self) -> bool:
        """True once the server has told all: the stop, the usage, and that it is done."""
        return self._done and self._stop is not None

    def begin(self, input_tokens: int) -> bytes:
        """The first event."""
        self._begun = True
        return message_start(self._model, {"input_tokens": input_tokens})

    def feed(self, chunk: bytes) -> bytes:
        """What to send for `chunk`; always whole events. Raises Fault."""
        told = []
        for line in self._events.feed(chunk).splitlines():
            data = line.removeprefix(b"data:").strip()
            if data == b"[DONE]":
                self._done = True
            elif line.startswith(b"data:"):
                told.append(self._translated(data))
        return b"".join(told)

    def rest(self) -> bytes:
        """The last events. Raises Fault when the server stopped before its answer did."""
        if self._stop is None:
            raise Fault(502, INCOMPLETE)
        delta = {"type": "message_delta", "delta": self._stop, "usage": self._usage.told()}
        return self._closed() + sse(delta) + sse({"type": "message_stop"})

    def _translated(self, data: bytes) -> bytes:
        try:
            chunk = msgspec.json.decode(data, type=_Chunk)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise OtherShape("stream") from error
        if chunk.error is not None:
            raise fault_of(Dialect.ANTHROPIC, 500, data)
        told = b"" if self._begun else self.begin(0)
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices[:1]:
            told += self._said(choice.delta)
            if choice.finish_reason is not None:
                reason = "tool_calls" if self._cut else choice.finish_reason
                self._stop = stop_of(reason, choice.stop_reason, self._stop_sequences)
        return told

    def _said(self, said: Said) -> bytes:
        told = b""
        if said.thinking:
            block = {"type": "thinking", "thinking": "", "signature": ""}
            told += self._in("thinking", block)
            told += self._delta({"type": "thinking_delta", "thinking": said.thinking})
        if said.content:
            told += self._in("text", {"type": "text", "text": ""})
            told += self._delta({"type": "text_delta", "text": said.content})
        for call in said.tool_calls or ():
            if self._one_call and call.index > 0:
                self._cut = True
            else:
                told += self._called(call)
        return told

    def _called(self, call: ToolCall) -> bytes:
        block = {
            "type": "tool_use",
            "id": call.id or f"toolu_{secrets.token_hex(12)}",
            "name": call.function.name or "",
            "input": {},
        }
        told = self._in(call.index, block)
        if call.function.arguments:
            arguments = call.function.arguments
            told += self._delta({"type": "input_json_delta", "partial_json": arguments})
        return told

    def _in(self, kind: str | int, block: JsonObject) -> bytes:
        """What opens `block`, unless the open block is of that `kind` already."""
        if self._open == kind:
            return b""
        told = self._closed()
        self._open = kind
        self._index += 1
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        return told + sse(start)

    def _closed(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return sse({"type": "content_block_stop", "index": self._index})

    def _delta(self, delta: JsonObject) -> bytes:
        return sse({"type": "content_block_delta", "index": self._index, "delta": delta})
