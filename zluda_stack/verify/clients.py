"""What a coding client needs of an endpoint besides answers, asked of the one that runs.

What Claude Code sends and relies on was read from its requests (2.1.332, 2026-11-30). A model's
template can leave out tools or the system prompt without a word: only a request shows it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from functools import partial

from msgspec import Struct

from zluda_stack.catalog.schema import Client, ClientMode
from zluda_stack.plan.clients import fits
from zluda_stack.plan.types import EndpointPlan
from zluda_stack.verify import selftest
from zluda_stack.verify.asking import Asker, JsonObject, attempt, require, session_with

_CHAT = "/v1/chat/completions"
_MESSAGES = "/v1/messages"
_COUNT = "/v1/messages/count_tokens"
_ANOTHER_NAME = "claude-sonnet-4-5"  # any name that a client may insist on

_QUESTION = {"role": "user", "content": "What is the weather in Paris? Call get_weather."}
_RESULT = "14 degrees and rain"
_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Name of the city"}},
    "required": ["city"],
}
_TOOL = {
    "name": "get_weather",
    "description": "Tells the weather in a city.",
    "input_schema": _PARAMETERS,
}
_CHAT_TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": _PARAMETERS},
}
_SHORT_SYSTEM = "Be brief."
_LONG_SYSTEM = "You are an assistant for programmers who work in a terminal. " * 8
_TITLE_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"title": {"type": "string", "enum": ["Weather in Paris"]}},
    "required": ["title"],
    "additionalProperties": False,
}

_NO_TOOLS = "The client can talk with it, but it will edit no files and run no commands."


class Verdict(str, Enum):
    """`limit`: the endpoint is right, but the model will not manage this."""

    OK = "ok"
    LIMIT = "limit"
    FAULT = "fault"


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was looked at, and what was seen or what it means for who uses the client."""

    name: str
    verdict: Verdict
    told: str
    seconds: float


class _Limit(Exception):
    """The model will not manage this; the text says what its user goes without."""


def run(
    endpoint: EndpointPlan,
    key: str,
    client: Client,
    mode: ClientMode,
    around: Callable[[str], AbstractContextManager[object]],
    *,
    only: Container[str] | None = None,
) -> Iterator[Finding]:
    """What `endpoint` has of what `client` in `mode` needs; one after the other.

    Each is looked for inside the context that `around` gives for its name; with `only`, no others
    than these. Never raises for what the endpoint answers. Asks for at most some 300 tokens in all.
    """
    with session_with(endpoint) as session:
        asker = Asker(session, endpoint.local_url, key, "default")
        user = _User(client, mode)
        for name, ask in (_FOR_CLAUDE if client.name == "claude" else _FOR_OPENAI).items():
            if only is not None and name not in only:
                continue
            with around(name):
                finding = _look(name, partial(ask, asker, user))
            yield finding


@dataclass(frozen=True)
class _User:
    """A client as it is used."""

    client: Client
    mode: ClientMode


def _look(name: str, ask: Callable[[], str]) -> Finding:
    began = time.monotonic()
    try:
        told, problem = attempt(ask)
        verdict = Verdict.FAULT if problem else Verdict.OK
    except _Limit as limit:
        told, problem, verdict = "", str(limit), Verdict.LIMIT
    seconds = round(time.monotonic() - began, 3)
    return Finding(name=name, verdict=verdict, told=problem or told, seconds=seconds)


def _streams(asker: Asker, user: _User) -> str:
    claude = user.client.name == "claude"
    said = selftest.messages_stream(asker) if claude else selftest.chat_stream(asker)
    return " ".join(said.split())


def _context(asker: Asker, user: _User) -> str:
    """The context that the server really has: it may be less than it was asked for."""
    model = asker.look("/v1/models")["data"][0]
    context = (model.get("meta") or {}).get("n_ctx") or model.get("max_model_len")
    if not isinstance(context, int):
        raise _Limit("the model server does not tell its context; too long a prompt will.")
    problem = fits(user.client, user.mode, context)
    if problem is not None:
        raise _Limit(f"{problem.message}. {problem.hint}")
    prompt = user.mode.prompt_tokens
    return f"{context} tokens" + (f", {prompt} of them for its own prompt" if prompt else "")


def _counts(asker: Asker, _: _User) -> str:
    """The count must be the model's own: the client decides by it when to compact."""
    body: JsonObject = {"messages": [_QUESTION]}
    counted = asker.ask(_COUNT, body)["input_tokens"]
    usage = asker.ask(_MESSAGES, {**body, "max_tokens": 1})["usage"]
    used = usage["input_tokens"] + (usage.get("cache_read_input_tokens") or 0)
    require(abs(counted - used) <= 2, f"{counted} tokens were counted, and {used} were used")
    return f"{counted} tokens counted, {used} used"


def _system(asker: Asker, _: _User) -> str:
    short, long = (
        asker.ask(_COUNT, {"system": system, "messages": [_QUESTION]})["input_tokens"]
        for system in (_SHORT_SYSTEM, _LONG_SYSTEM)
    )
    if long - short < len(_LONG_SYSTEM.split()) // 2:
        raise _Limit(
            "the model's template leaves out the system prompt. "
            "The client's instructions and your CLAUDE.md do not reach the model."
        )
    return "reaches the model"


def _tools(asker: Asker, _: _User) -> str:
    """One call in fragments and back: the shape in which every tool of the client is used."""
    _require_place_for_tools(asker)
    body: JsonObject = {
        "messages": [_QUESTION],
        "thinking": {"type": "disabled"},
        "tools": [_TOOL],
    }
    call = _called(asker, {**body, "max_tokens": 128, "temperature": 0})
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": _RESULT}
    turns = [
        _QUESTION,
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    answer = asker.ask(_MESSAGES, {**body, "messages": turns, "max_tokens": 32, "temperature": 0})
    require(bool(answer["content"]), "nothing came back after the result of a tool")
    return f"called {call['name']} with {json.dumps(call['input'])}, and went on with its result"


def _require_place_for_tools(asker: Asker) -> None:
    """Raises _Limit when the prompt is as long with a tool as without.

    It costs no computing, while a small model on a CPU may talk for minutes instead of calling.
    """
    body: JsonObject = {"messages": [_QUESTION], "thinking": {"type": "disabled"}}
    without = asker.ask(_COUNT, body)["input_tokens"]
    if asker.ask(_COUNT, {**body, "tools": [_TOOL]})["input_tokens"] == without:
        raise _Limit(f"the model's template leaves out tools. {_NO_TOOLS}")


def _called(asker: Asker, body: JsonObject) -> JsonObject:
    """The first tool_use block of a stream."""
    block: JsonObject | None = None
    fragments: list[str] = []
    for _, data in asker.events(_MESSAGES, body):
        event = json.loads(data)
        require(event["type"] != "error", f"the stream broke off: {data}")
        opened = event.get("content_block") or {}
        if block is None and opened.get("type") == "tool_use":
            block = opened
        fragments.append((event.get("delta") or {}).get("partial_json") or "")
    if block is None:
        raise _Limit(f"the model was told to call a tool and did not. {_NO_TOOLS}")
    return {**block, "input": _arguments("".join(fragments))}


def _chat_tools(asker: Asker, _: _User) -> str:
    _require_place_for_tools(asker)
    body = {
        "messages": [_QUESTION],
        "tools": [_CHAT_TOOL],
        "max_tokens": 128,
        "temperature": 0,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    message = asker.ask(_CHAT, body)["choices"][0]["message"]
    calls = message.get("tool_calls")
    if not calls:
        raise _Limit(f"the model was told to call a tool and did not. {_NO_TOOLS}")
    _arguments(calls[0]["function"]["arguments"])
    result = {"role": "tool", "tool_call_id": calls[0]["id"], "content": _RESULT}
    turns = [_QUESTION, {"content": None, **message}, result]
    answer = asker.ask(_CHAT, {**body, "messages": turns, "max_tokens": 32})
    require(answer["choices"][0]["message"]["role"] == "assistant", "no answer to a tool's result")
    called = calls[0]["function"]
    return f"called {called['name']} with {called['arguments']}, and went on with its result"


def _arguments(text: str) -> object:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("city"), str):
        raise _Limit(f"the model called a tool with wrong arguments ({text[:80]}). {_NO_TOOLS}")
    return found


def _schema(asker: Asker, _: _User) -> str:
    wanted = {"format": {"type": "json_schema", "schema": _TITLE_SCHEMA}}
    body = {"messages": [_QUESTION], "max_tokens": 48, "output_config": wanted}
    answer = asker.ask(_MESSAGES, {**body, "thinking": {"type": "disabled"}})
    text = "".join(block.get("text", "") for block in answer["content"])
    if answer["stop_reason"] == "max_tokens":
        raise _Limit("the model came to no end. Conversations get no titles.")
    require(json.loads(text) == {"title": "Weather in Paris"}, f"the schema was not kept: {text}")
    return "kept"


def _names(asker: Asker, _: _User) -> str:
    body = {"model": _ANOTHER_NAME, "messages": [_QUESTION], "max_tokens": 1}
    came = asker.ask(_MESSAGES, body)["model"]
    require(came == _ANOTHER_NAME, f"{_ANOTHER_NAME} was asked for, and {came} answered")
    return "any name is served, and given back"


def _pictures(asker: Asker, _: _User) -> str:
    model = asker.look("/v1/models")["data"][0]
    if "image" not in (model.get("architecture") or {}).get("input_modalities", ()):
        raise _Limit("the model sees none. Screenshots and pictures are left out.")
    return "the model sees them"


_Ask = Callable[[Asker, _User], str]
_FOR_CLAUDE: dict[str, _Ask] = {
    "streaming": _streams,
    "model names": _names,
    "context": _context,
    "token count": _counts,
    "system prompt": _system,
    "tools": _tools,
    "JSON schema": _schema,
    "pictures": _pictures,
}
_FOR_OPENAI: dict[str, _Ask] = {
    "streaming": _streams,
    "context": _context,
    "tools": _chat_tools,
    "pictures": _pictures,
}
