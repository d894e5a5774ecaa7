"""A request of Anthropic's Messages API as one of OpenAI's Chat Completions API.

For model servers that speak OpenAI's API only, and for what llama.cpp's own translation has no
place for: a JSON schema of the answer, at most one tool call, no tool calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from zluda_stack.gateway.blocks import Block, words_of

JsonObject = dict[str, Any]

_SAME = ("max_tokens", "temperature", "top_p", "top_k", "stream", "chat_template_kwargs")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_request(body: JsonObject, schema: JsonObject | None) -> JsonObject:
    """`body`, as MessagesRequest.edited returns it, for /v1/chat/completions."""
    chat: JsonObject = {
        "model": body.get("model", ""),
        "messages": [*_system(body.get("system")), *_turns(body["messages"])],
        **{name: body[name] for name in _SAME if name in body},
    }
    if body.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    if body.get("stop_sequences"):
        chat["stop"] = body["stop_sequences"]
    if body.get("tools"):
        chat["tools"] = [_tool(tool) for tool in body["tools"]]
        chat.update(_choice(body.get("tool_choice") or {}))
    if schema is not None:
        wanted = {"name": "answer", "strict": True, "schema": schema}
        chat["response_format"] = {"type": "json_schema", "json_schema": wanted}
    return chat


def _system(system: str | list[Block] | None) -> Iterator[JsonObject]:
    if system:
        yield {"role": "system", "content": words_of(system)}


def _turns(messages: Iterable[JsonObject]) -> Iterator[JsonObject]:
    for message in messages:
        content = message["content"]
        if isinstance(content, str):
            yield {"role": message["role"], "content": content}
        elif message["role"] == "assistant":
            yield _assistant(content)
        else:
            yield from map(_result, (one for one in content if one["type"] == "tool_result"))
            if others := [one for one in content if one["type"] != "tool_result"]:
                yield {"role": "user", "content": _parts(others)}


def _assistant(content: list[Block]) -> JsonObject:
    told: JsonObject = {"role": "assistant", "content": words_of(content)}
    thinking = [one.get("thinking", "") for one in content if one["type"] == "thinking"]
    calls = [_call(block) for block in content if block["type"] == "tool_use"]
    if thinking:
        told["reasoning_content"] = "".join(thinking)
    if calls:
        told["tool_calls"] = calls
    return told


def _call(block: Block) -> JsonObject:
    arguments = msgspec.json.encode(block.get("input", {})).decode()
    function = {"name": block.get("name", ""), "arguments": arguments}
    return {"id": block.get("id", ""), "type": "function", "function": function}


def _result(block: Block) -> JsonObject:
    content = block["content"]
    return {
        "role": "tool",
        "tool_call_id": block.get("tool_use_id", ""),
        "content": content if isinstance(content, str) else _parts(content),
    }


def _parts(content: list[Block]) -> str | list[JsonObject]:
    """Text alone as a string, which every server takes."""
    if all(block["type"] == "text" for block in content):
        return words_of(content)
    return [_image(one) if one["type"] == "image" else one for one in content]


def _image(block: Block) -> JsonObject:
    source = block.get("source") or {}
    url = source.get("url")
    if url is None:
        url = f"data:{source.get('media_type', 'image/jpeg')};base64,{source.get('data', '')}"
    return {"type": "image_url", "image_url": {"url": url}}


def _tool(tool: JsonObject) -> JsonObject:
    function = {
        "name": tool.get("name", ""),
        "description": tool.get("description", ""),
        "parameters": tool.get("input_schema") or {"type": "object", "properties": {}},
    }
    return {"type": "function", "function": function}


def _choice(choice: JsonObject) -> JsonObject:
    told: JsonObject = {}
    if choice.get("type") == "tool":
        told["tool_choice"] = {"type": "function", "function": {"name": choice.get("name", "")}}
    elif choice.get("type") in _CHOICES:
        told["tool_choice"] = _CHOICES[choice["type"]]
    if choice.get("disable_parallel_tool_use"):
        told["parallel_tool_calls"] = False
    return told
