"""Proof that an endpoint answers: real requests in both dialects, streaming and not.

What each answer must contain follows OpenAI's Chat Completions and Anthropic's Messages API
reference (streaming included), read 2026-11-30; their official clients rely on the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import requests
from msgspec import Struct

_PROMPT = "Say hello in one short sentence."
_MAX_TOKENS = 24
_TIMEOUT_SECONDS = (5, 600)

JsonObject = dict[str, Any]


class Check(Struct, frozen=True, kw_only=True):
    """One request: `text` is what the model said, `detail` why the answer is not right."""

    name: str
    ok: bool
    seconds: float
    text: str = ""
    detail: str = ""


class _Wrong(Exception):
    """The answer breaks the protocol; the text says where."""


def run(url: str, key: str, model: str = "default") -> tuple[Check, ...]:
    """Ask the endpoint at `url` (without /v1) four times; never raises for what it answers."""
    with requests.Session() as session:
        # A proxy or a .netrc of the user's environment must not come between.
        session.trust_env = False
        client = _Client(session, url, key, model)
        return (
            _check("/v1/chat/completions", lambda: _chat(client)),
            _check("/v1/chat/completions, streaming", lambda: _chat_stream(client)),
            _check("/v1/messages", lambda: _messages(client)),
            _check("/v1/messages, streaming", lambda: _messages_stream(client)),
        )


def _check(name: str, ask: Callable[[], str]) -> Check:
    began = time.monotonic()
    try:
        text, detail = ask(), ""
    except _Wrong as wrong:
        text, detail = "", str(wrong)
    except requests.RequestException as error:
        text, detail = "", f"no answer: {type(error).__name__}"
    except (KeyError, IndexError, TypeError, ValueError) as error:
        text, detail = "", f"the answer has another shape: {error!r}"
    return Check(
        name=name,
        ok=not detail,
        seconds=round(time.monotonic() - began, 3),
        text=text,
        detail=detail,
    )


class _Client:
    """Sends the one question of the self-test."""

    def __init__(self, session: requests.Session, url: str, key: str, model: str) -> None:
        self._session = session
        self._url = url
        self._key = key
        self._model = model

    def ask(self, path: str, **more: object) -> JsonObject:
        """The JSON object that `path` answers with."""
        answer = self._post(path, more).json()
        if not isinstance(answer, dict):
            raise _Wrong("the answer is not a JSON object")
        return answer

    def events(self, path: str, **more: object) -> Iterator[tuple[str | None, str]]:
        """(event name or None, data) of each server-sent event that `path` answers with."""
        response = self._post(path, {"stream": True, **more})
        kind = response.headers.get("content-type", "")
        _require(kind.startswith("text/event-stream"), f"a stream was asked for, {kind} came")
        name: str | None = None
        for raw in response.iter_lines(chunk_size=None):
            field, _, value = raw.decode().partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                yield name, value
                name = None

    def _post(self, path: str, more: JsonObject) -> requests.Response:
        body = {
            "model": self._model,
            "max_tokens": _MAX_TOKENS,
            "temperature": 0,
            "messages": [{"role": "user", "content": _PROMPT}],
            **more,
        }
        headers = {"Authorization": f"Bearer {self._key}", "anthropic-version": "2023-06-01"}
        response = self._session.post(
            self._url + path,
            json=body,
            headers=headers,
            stream=True,
            timeout=_TIMEOUT_SECONDS,
        )
        if not response.ok:
            raise _Wrong(f"HTTP {response.status_code}: {response.text[:500]}")
        return response


def _chat(client: _Client) -> str:
    answer = client.ask("/v1/chat/completions")
    choice = answer["choices"][0]
    _require(choice["message"]["role"] == "assistant", "the message is not the assistant's")
    _require_chat_end(choice["finish_reason"], answer["usage"])
    return _said(choice["message"].get("content"), choice["message"].get("reasoning_content"))


def _chat_stream(client: _Client) -> str:
    said, thought = [], []
    finish, usage, done = None, None, False
    for _, data in client.events("/v1/chat/completions", stream_options={"include_usage": True}):
        _require(not done, "data came after [DONE]")
        if data == "[DONE]":
            done = True
            continue
        chunk = json.loads(data)
        _require("error" not in chunk, f"the stream broke off: {data}")
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            said.append(choice["delta"].get("content") or "")
            thought.append(choice["delta"].get("reasoning_content") or "")
            finish = choice["finish_reason"] or finish
    _require(done, "the stream ended without [DONE]")
    _require_chat_end(finish, usage)
    return _said("".join(said), "".join(thought))


def _messages(client: _Client) -> str:
    answer = client.ask("/v1/messages")
    _require(answer["type"] == "message", f"a message was expected, {answer['type']} came")
    _require_message_end(answer["stop_reason"], answer["usage"])
    blocks = answer["content"]
    return _said(
        "".join(block["text"] for block in blocks if block["type"] == "text"),
        "".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
    )


def _messages_stream(client: _Client) -> str:
    said, thought, order = [], [], []
    stop, usage = None, None
    for name, data in client.events("/v1/messages"):
        event = json.loads(data)
        kind = event["type"]
        _require(kind != "error", f"the stream broke off: {data}")
        _require(name == kind, f"the event {name} carries the type {kind}")
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
    _require(order[:1] == ["message_start"], f"the stream began with {order[:1]}")
    _require(order[-2:] == ["message_delta", "message_stop"], f"the stream ended with {order[-2:]}")
    inside = False
    for kind in order[1:-2]:
        _require(kind.startswith("content_block_"), f"{kind} came among the content blocks")
        _require(inside == (kind != "content_block_start"), f"{kind} came out of order")
        inside = kind != "content_block_stop"
    _require(not inside, "a content block was not closed")


def _require_chat_end(finish_reason: object, usage: JsonObject | None) -> None:
    _require(finish_reason in {"stop", "length"}, f"finish_reason is {finish_reason}")
    _require(usage is not None and usage["completion_tokens"] > 0, f"usage is {usage}")


def _require_message_end(stop_reason: object, usage: JsonObject | None) -> None:
    _require(stop_reason in {"end_turn", "max_tokens"}, f"stop_reason is {stop_reason}")
    _require(usage is not None and usage["output_tokens"] > 0, f"usage is {usage}")


def _said(text: str | None, thinking: str | None) -> str:
    """What the model said; a model that thinks first may have come no further than that."""
    said = (text or "").strip() or (thinking or "").strip()
    _require(bool(said), "the model's text is empty")
    return said


def _require(condition: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not condition:
        raise _Wrong(otherwise)
