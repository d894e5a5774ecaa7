"""A request of OpenAI's APIs, as far as the endpoint must know it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct

from zluda_stack.gateway.errors import Fault, invalid

JsonObject = dict[str, Any]

MODEL_FIELD = re.compile(rb'"model":\s*"[^"\\]*"')


# llama.cpp's word for "as many as there is room for", which some clients send.
_NO_LIMIT = -1


class _Request(Struct):
    model: str | None = None
    stream: bool | None = None
    tools: list[JsonObject] | None = None
    tool_choice: str | JsonObject | None = None
    messages: list[Raw] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None

    def check(self) -> None:
        """Raises Fault 400 for what llama.cpp's server answers as if something else was asked."""
        if self.messages is not None and not self.messages:
            raise Fault(400, "messages: at least one message is required")
        for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
            limit = getattr(self, name)
            if limit is not None and limit < 1 and limit != _NO_LIMIT:
                raise Fault(400, f"{name}: must be at least 1, not {limit}")


class OpenAIRequest:
    """One request. Raises Fault 400 when it is none.

    `model` is the name that the client asked for, "" when it asked for none.
    """

    def __init__(self, content: bytes) -> None:
        try:
            checked = msgspec.json.decode(content, type=_Request)
            one_tool = isinstance(checked.tool_choice, dict)
            self.content = _with_one_tool(content, checked) if one_tool else content
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise invalid(content, error) from error
        checked.check()
        self.model = checked.model or ""
        self.stream = bool(checked.stream)

    def content_for(self, model: str) -> bytes:
        """The request as bytes, with `model` as its model. Raises Fault 400."""
        if model == self.model:
            return self.content
        try:
            body = msgspec.json.decode(self.content, type=dict[str, Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:  # in a name, unread before
            raise invalid(self.content, error) from error
        return msgspec.json.encode({**body, "model": model})


def renamed(answer: bytes, model: str) -> bytes:
    """`answer` with `model` as the name of its model; unchanged when that is ""."""
    if not model:
        return answer
    told = b'"model":' + msgspec.json.encode(model)
    return MODEL_FIELD.sub(lambda _: told, answer, count=1)


def _with_one_tool(content: bytes, checked: _Request) -> bytes:
    """`content` with the one tool that `tool_choice` names, and told to call it.

    llama.cpp's server takes a choice that is an object for "auto" without a word.
    """
    name = _function_name(checked.tool_choice)
    chosen = [tool for tool in checked.tools or () if name and _function_name(tool) == name]
    if not chosen:
        return content
    body = msgspec.json.decode(content, type=dict[str, Raw])
    return msgspec.json.encode({**body, "tools": chosen, "tool_choice": "required"})


def _function_name(told: object) -> object:
    """The name in a tool or a choice of one: the Responses API has it one level higher."""
    if not isinstance(told, dict):
        return None
    function = told.get("function")
    return (function if isinstance(function, dict) else told).get("name")
