"""A request of Anthropic's Messages API: read once, and made fit for llama.cpp's server.

What Claude Code sends and what the server makes of it was measured on 2026-11-30 with Claude Code
2.1.332 and llama.cpp build 11669.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
from msgspec import Struct

from zluda_stack.gateway import blocks, tools
from zluda_stack.gateway.blocks import Block, words_of
from zluda_stack.gateway.errors import Fault, invalid
from zluda_stack.gateway.turns import as_blocks, in_turns, leading_system

JsonObject = dict[str, Any]

# Claude Code's first system text. Its value changes from request to request and would spoil the
# model server's cache of everything behind it.
_BILLING = re.compile(r"x-anthropic-billing-header:[^\n]*?(?:cch=\w+;|\n|$)\s*")


class _Source(Struct):
    content: str | list[_Block] | None = None


class _Block(Struct):
    type: str
    text: str = ""
    thinking: str = ""
    content: str | list[_Block] | JsonObject | None = None
    source: _Source | None = None


class _Message(Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[_Block]


class _Tool(Struct):
    name: str = ""
    type: str | None = None
    input_schema: JsonObject | None = None


class _ToolChoice(Struct):
    type: str
    name: str = ""
    disable_parallel_tool_use: bool = False


class _Request(Struct):
    """What must have its type for anything else here to work."""

    messages: list[_Message]
    model: str = ""
    stream: bool | None = False
    max_tokens: int | None = None
    system: str | list[_Block] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _ToolChoice | None = None
    stop_sequences: list[str] | None = None
    thinking: JsonObject | None = None
    output_config: JsonObject | None = None
    output_format: JsonObject | None = None


class MessagesRequest:
    """One request, as the client sent it. Raises Fault 400 when it is none."""

    def __init__(self, content: bytes) -> None:
        try:
            self.body = msgspec.json.decode(content, type=JsonObject)
            checked = msgspec.convert(self.body, _Request)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise invalid(content, error) from error
        if not checked.messages:
            raise Fault(400, "messages: at least one message is required")
        if checked.max_tokens is not None and checked.max_tokens < 1:
            raise Fault(400, f"max_tokens: must be at least 1, not {checked.max_tokens}")
        self._content = content
        self.model = checked.model
        self.stream = bool(checked.stream)
        self.stop_sequences = tuple(checked.stop_sequences or ())
        self.has_images = any(blocks.has_image(one["content"]) for one in self.body["messages"])

    @property
    def schema(self) -> JsonObject | None:
        """The JSON schema that the answer must follow, None when there is none."""
        wanted = (self.body.get("output_config") or {}).get("format")
        wanted = wanted or self.body.get("output_format")
        schema = wanted.get("schema") if isinstance(wanted, dict) else None
        return schema if isinstance(schema, dict) else None

    @property
    def tool_choice(self) -> JsonObject:
        """How tools are to be used; {} when that is left to the model."""
        return self.body.get("tool_choice") or {}

    def edited(self, *, sees_images: bool) -> JsonObject:
        """The body with only what llama.cpp's server understands. Raises Fault 400."""
        body, messages = dict(self.body), self.body["messages"]
        if body.get("tools"):
            body["tools"] = tools.offered(body["tools"], messages)
        leading = leading_system(messages)
        if system := _system(body.get("system"), messages[:leading]):
            body["system"] = system
        else:
            body.pop("system", None)
        reduced = [_reduced(message, sees_images=sees_images) for message in messages[leading:]]
        body["messages"] = in_turns(reduced)
        if (body.get("thinking") or {}).get("type") == "disabled":
            given = body.get("chat_template_kwargs")
            given = given if isinstance(given, dict) else {}
            body["chat_template_kwargs"] = {"enable_thinking": False, **given}
        return body

    def encoded(self, body: JsonObject) -> bytes:
        """`body` as JSON: the client's own bytes when nothing in it was changed."""
        return self._content if body == self.body else msgspec.json.encode(body)


def _reduced(message: JsonObject, *, sees_images: bool) -> JsonObject:
    content = message["content"]
    if isinstance(content, str):
        return message
    return {**message, "content": blocks.reduced(content, sees_images=sees_images)}


def _system(
    system: str | list[Block] | None, leading: list[JsonObject]
) -> str | list[Block] | None:
    """The system prompt with the `leading` messages of the conversation, without billing."""
    if isinstance(system, str) and not leading:
        return _unbilled(system)
    given = [*as_blocks(system or []), *(blocks.text(words_of(one["content"])) for one in leading)]
    unbilled = [{**block, "text": _unbilled(block.get("text", ""))} for block in given]
    return [block for block in unbilled if block["text"]]


def _unbilled(words: str) -> str:
    found = _BILLING.match(words)
    return words[found.end() :] if found else words
