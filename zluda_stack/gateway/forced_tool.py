"""A tool call that the model must make.

llama.cpp's server takes `any` and `tool` for a wish: with most templates the model answers in
text all the same (measured 2026-11-30). So the answer is held to a JSON schema of the call, and
the JSON that comes is told as the call that it is.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from zluda_stack.gateway.errors import Fault
from zluda_stack.gateway.translate_answer import Said, message_of
from zluda_stack.gateway.translate_events import TranslatedEvents

JsonObject = dict[str, Any]

# Where JSON schemas keep what they refer to: references count from the root of the whole.
_SHARED = ("$defs", "definitions")


class _Call(Struct):
    name: str
    arguments: JsonObject


def call_schema(tools: Iterable[JsonObject], choice: JsonObject) -> JsonObject:
    """The JSON schema of a call of the tool that `choice` names, or of any. Raises Fault 400."""
    wanted = choice.get("name") if choice.get("type") == "tool" else None
    chosen = [tool for tool in tools if wanted is None or tool.get("name") == wanted]
    if not chosen:
        raise Fault(400, f"tool_choice: there is no tool {wanted}")
    shared: JsonObject = {}
    calls = [_call_of(tool, shared) for tool in chosen]
    return {**(calls[0] if len(calls) == 1 else {"anyOf": calls}), **shared}


def forced(chat: JsonObject, schema: JsonObject) -> JsonObject:
    """`chat`, a request of OpenAI's API, with its answer held to `schema`.

    The tools stay in the prompt, where the model reads of them and the cache has them.
    """
    wanted = {"name": "call", "strict": True, "schema": schema}
    answer = {"type": "json_schema", "json_schema": wanted}
    return {**chat, "tool_choice": "none", "response_format": answer}


def forced_message(answer: bytes, model: str, stop_sequences: tuple[str, ...]) -> JsonObject:
    """The message of a forced `answer`. Raises Fault."""
    message = message_of(answer, model, stop_sequences, one_call=True)
    words = "".join(one["text"] for one in message["content"] if one["type"] == "text")
    return {**message, **_told(words, message["stop_reason"])}


class ForcedToolEvents(TranslatedEvents):
    """The stream of a forced call. It is told at the end, when the name of the tool is sure."""

    def __init__(self, model: str, stop_sequences: tuple[str, ...]) -> None:
        super().__init__(model, stop_sequences, one_call=True)
        self._words: list[str] = []

    def _said(self, said: Said) -> bytes:
        self._words.append(said.content or "")
        return b""

    def rest(self) -> bytes:
        """The whole call. Raises Fault when the server stopped before its answer did."""
        told = b""
        if self._stop is not None:
            message = _told("".join(self._words), self._stop["stop_reason"])
            self._stop = {**self._stop, "stop_reason": message["stop_reason"]}
            for block in message["content"]:
                given = msgspec.json.encode(block["input"]).decode()
                told += self._in(0, {**block, "input": {}})
                told += self._delta({"type": "input_json_delta", "partial_json": given})
        return told + super().rest()


def _call_of(tool: JsonObject, shared: JsonObject) -> JsonObject:
    schema = dict(tool.get("input_schema") or {"type": "object"})
    for name in _SHARED:
        if isinstance(definitions := schema.pop(name, None), dict):
            shared.setdefault(name, {}).update(definitions)
    return {
        "type": "object",
        "properties": {"name": {"const": tool.get("name", "")}, "arguments": schema},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _told(words: str, stop_reason: str) -> JsonObject:
    """Content and stop_reason; no content when the model was cut off within the call."""
    try:
        call = msgspec.json.decode(words, type=_Call)
    except msgspec.MsgspecError:
        return {"content": [], "stop_reason": stop_reason}
    block = {
        "type": "tool_use",
        "id": f"toolu_{secrets.token_hex(12)}",
        "name": call.name,
        "input": call.arguments,
    }
    return {"content": [block], "stop_reason": "tool_use"}
