"""Proof that an endpoint answers: real requests in both dialects, streaming and not.

What each answer must contain follows OpenAI's Chat Completions and Anthropic's Messages API
reference (streaming included), read 2026-11-30; their official clients rely on the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from msgspec import Struct

from zluda_stack.plan.types import EndpointPlan
from zluda_stack.verify.asking import Asker, JsonObject, attempt, require, session_with

_QUESTION: JsonObject = {
    "max_tokens": 24,
    "temperature": 0,
    "messages": [{"role": "user", "content": "Say hello in one short sentence."}],
}


class Check(Struct, frozen=True, kw_only=True):
    """One request: `text` is what the `model` said, `detail` why the answer is not right."""

    name: str
    model: str
    ok: bool
    seconds: float
    text: str = ""
    detail: str = ""


def run(endpoint: EndpointPlan, key: str, model: str = "default") -> tuple[Check, ...]:
    """Ask `model` of `endpoint` four times; never raises for what it answers."""
    with session_with(endpoint) as session:
        client = Asker(session, endpoint.local_url, key, model)
        return (
            _check("/v1/chat/completions", model, lambda: _chat(client)),
            _check("/v1/chat/completions, streaming", model, lambda: chat_stream(client)),
            _check("/v1/messages", model, lambda: _messages(client)),
            _check("/v1/messages, streaming", model, lambda: messages_stream(client)),
        )


def _check(name: str, model: str, ask: Callable[[], str]) -> Check:
    began = time.monotonic()
    text, detail = attempt(ask)
    return Check(
        name=name,
        model=model,
        ok=not detail,
        seconds=round(time.monotonic() - began, 3),
        text=text,
        detail=detail,
    )


def _chat(client: Asker) -> str:
    answer = client.ask("/v1/chat/completions", _QUESTION)
    choice = answer["choices"][0]
    require(choice["message"]["role"] == "assistant", "the message is not the assistant's")
    _require_chat_end(choice["finish_reason"], answer["usage"])
    return _said(choice["message"].get("content"), choice["message"].get("reasoning_content"))


def chat_stream(client: Asker) -> str:
    """What the model said in a stream of /v1/chat/completions. Raises Wrong."""
    said, thought = [], []
    finish, usage, done = None, None, False
    question = {**_QUESTION, "stream_options": {"include_usage": True}}
    for _, data in client.events("/v1/chat/completions", question):
        require(not done, "data came after [DONE]")
        if data == "[DONE]":
            done = True
            continue
        chunk = json.loads(data)
        require("error" not in chunk, f"the stream broke off: {data}")
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            said.append(choice["delta"].get("content") or "")
            thought.append(choice["delta"].get("reasoning_content") or "")
            finish = choice["finish_reason"] or finish
    require(done, "the stream ended without [DONE]")
    _require_chat_end(finish, usage)
    return _said("".join(said), "".join(thought))


def _messages(client: Asker) -> str:
    answer = client.ask("/v1/messages", _QUESTION)
    require(answer["type"] == "message", f"a message was expected, {answer['type']} came")
    _require_message_end(answer["stop_reason"], answer["usage"])
    blocks = answer["content"]
    return _said(
        "".join(block["text"] for block in blocks if block["type"] == "text"),
        "".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
    )


def messages_stream(client: Asker) -> str:
    """What the model said in a stream of /v1/messages. Raises Wrong when its events are not."""
    said, thought, order = [], [], []
    stop, usage = None, None
    for name, data in client.events("/v1/messages", _QUESTION):
        event = json.loads(data)
        kind = event["type"]
        require(kind != "error", f"the stream broke off: {data}")
        require(name == kind, f"the event {name} carries the type {kind}")
        if kind != "ping":
            order.append(kind)
        if kind == "content_block_delta":
            said.append(event["delta"].get("text", ""))
            thought.append(event["delta"].get("thinking", ""))
        elif kind == "message_delta":
            stop, usage = event["delta"]["stop_reason"], event["usage"]
    _require_message_order(order)
    _require_message_end(stop, usage)
    return _said("".join(said), "".join(thought))


def _require_message_order(order: list[str]) -> None:
    """One message_start, blocks that open, grow and close, message_delta, message_stop."""
    require(order[:1] == ["message_start"], f"the stream began with {order[:1]}")
    require(order[-2:] == ["message_delta", "message_stop"], f"the stream ended with {order[-2:]}")
    inside = False
    for kind in order[1:-2]:
        require(kind.startswith("content_block_"), f"{kind} came among the content blocks")
        require(inside == (kind != "content_block_start"), f"{kind} came out of order")
        inside = kind != "content_block_stop"
    require(not inside, "a content block was not closed")


def _require_chat_end(finish_reason: object, usage: JsonObject | None) -> None:
    require(finish_reason in {"stop", "length"}, f"finish_reason is {finish_reason}")
    require(usage is not None and usage["completion_tokens"] > 0, f"usage is {usage}")


def _require_message_end(stop_reason: object, usage: JsonObject | None) -> None:
    require(stop_reason in {"end_turn", "max_tokens"}, f"stop_reason is {stop_reason}")
    require(usage is not None and usage["output_tokens"] > 0, f"usage is {usage}")


def _said(text: str | None, thinking: str | None) -> str:
    """What the model said; a model that thinks first may have come no further than that."""
    said = (text or "").strip() or (thinking or "").strip()
    require(bool(said), "the model's text is empty")
    return said
