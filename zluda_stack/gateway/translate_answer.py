"""A chat completion of OpenAI's API as a message of Anthropic's."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec
from msgspec import Struct

from zluda_stack.gateway.failures import OtherShape
from zluda_stack.gateway.message_events import new_id

JsonObject = dict[str, Any]

_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


class Details(Struct):
    """How much of a prompt came from a cache."""

    cached_tokens: int | None = None


class Usage(Struct):
    """Tokens of one answer."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: Details | None = None

    def told(self) -> JsonObject:
        """The same in Anthropic's terms, where tokens from the cache are apart."""
        details = self.prompt_tokens_details
        cached = (details.cached_tokens if details else None) or 0
        return {
            "input_tokens": self.prompt_tokens - cached,
            "cache_read_input_tokens": cached,
            "output_tokens": self.completion_tokens,
        }


class Function(Struct):
    """A tool call, or a part of one in a stream."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(Struct):
    """A tool call, or a part of one in a stream."""

    index: int = 0
    id: str | None = None
    function: Function = msgspec.field(default_factory=Function)


class Said(Struct):
    """What the assistant said, or the next part of it. vLLM calls thinking `reasoning`."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None

    @property
    def thinking(self) -> str:
        """The text of its thinking."""
        return self.reasoning_content or self.reasoning or ""


class _Choice(Struct):
    message: Said
    finish_reason: str | None = None
    stop_reason: str | int | None = None  # vLLM: the stop sequence


class _Completion(Struct):
    choices: list[_Choice]
    usage: Usage | None = None


def message_of(
    answer: bytes, model: str, stop_sequences: tuple[str, ...], *, one_call: bool
) -> JsonObject:
    """The message for a client that asked for `model`, with the first tool call only when
    `one_call`. Raises Fault."""
    try:
        completion = msgspec.json.decode(answer, type=_Completion)
        choice = completion.choices[0]
        calls = choice.message.tool_calls or []
        if one_call and len(calls) > 1:
            choice.message.tool_calls = calls[:1]
            choice.finish_reason = "tool_calls"  # whatever ended the others
        content = _content(choice.message)
    except (msgspec.MsgspecError, UnicodeDecodeError, IndexError) as error:
        raise OtherShape from error
    return {
        "id": new_id(),
        "type": "message",
        "role": "assistant",
        "content": content,
        "model": model,
        **stop_of(choice.finish_reason, choice.stop_reason, stop_sequences),
        "usage": (completion.usage or Usage()).told(),
    }


def stop_of(
    finish_reason: str | None, sequence: str | int | None, stop_sequences: tuple[str, ...]
) -> JsonObject:
    """stop_reason and stop_sequence, where the server tells which of the sequences it was."""
    if isinstance(sequence, str) and sequence in stop_sequences:
        return {"stop_reason": "stop_sequence", "stop_sequence": sequence}
    reason = _REASONS.get(finish_reason or "stop", "end_turn")
    return {"stop_reason": reason, "stop_sequence": None}


def _content(said: Said) -> list[JsonObject]:
    content: list[JsonObject] = []
    if said.thinking:
        content.append({"type": "thinking", "thinking": said.thinking, "signature": ""})
    if said.content:
        content.append({"type": "text", "text": said.content})
    content.extend(_tool_use(call) for call in said.tool_calls or ())
    return content


def _tool_use(call: ToolCall) -> JsonObject:
    try:
        given = msgspec.json.decode(call.function.arguments or "{}", type=JsonObject)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        given = {}  # the model was cut off, or made no JSON
    return {
        "type": "tool_use",
        "id": call.id or f"toolu_{secrets.token_hex(12)}",
        "name": call.function.name or "",
        "input": given,
    }
