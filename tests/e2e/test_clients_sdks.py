"""The official Python packages against the endpoint, sync and async, where a script is needed.

What a real model can show is in test_embedded_endpoint.py.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.fake_coder import FakeCoder, call, in_order, text
from tests.fake_upstream import Script, message_events, silence, stream, whole
from tests.running_gateway import CHAT, KEY, MESSAGES, RunningGateway, Start

MESSAGE: Any = {
    "model": "default",
    "max_tokens": 16,
    "messages": [{"role": "user", "content": "?"}],
}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
LATER = 5.0  # seconds in which a test that hangs fails


def chunk(finish: str | None = None, **delta: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    told = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "default"}
    return b"data: %s\n\n" % json.dumps({**told, "choices": [choice]}).encode()


def chat(*chunks: bytes, then: Script | None = None) -> Script:
    return stream(*chunks, then=then) if then else stream(*chunks, b"data: [DONE]\n\n")


HELLO = {
    MESSAGES: stream(*message_events("Hel", "lo")),
    CHAT: chat(chunk(role="assistant"), chunk(content="Hel"), chunk(content="lo"), chunk("stop")),
}
STUCK = {
    MESSAGES: stream(*message_events("Hel")[:2], then=silence),
    CHAT: chat(chunk(content="Hel"), then=silence),
}


COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "default",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "Hello."},
        }
    ],
}
A_MESSAGE = {
    "id": "chatcmpl-1",
    "type": "message",
    "role": "assistant",
    "model": "default",
    "content": [{"type": "text", "text": "Hello."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


class Sdk:
    """The two packages, as their users set them up."""

    def __init__(self, gateway: RunningGateway) -> None:
        url = f"http://127.0.0.1:{gateway.port}"
        self.claude = anthropic.Anthropic(base_url=url, auth_token=KEY, max_retries=0)
        self.gpt = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)
        self.async_claude = anthropic.AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0)
        self.async_gpt = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)


@pytest.fixture
def sdk(gateway: RunningGateway) -> Sdk:
    return Sdk(gateway)


@pytest.fixture
def coder(gateway: RunningGateway) -> Iterator[FakeCoder]:
    server = FakeCoder(gateway.socket, in_order(text("Hello.")))
    yield server
    server.close()


def test_async_streams_arrive_in_their_parts(sdk: Sdk, model_server: Start) -> None:
    model_server(HELLO)

    async def of_anthropic() -> list[str]:
        async with sdk.async_claude.messages.stream(**MESSAGE) as events:
            return [part async for part in events.text_stream]

    async def of_openai() -> list[str]:
        chunks = await sdk.async_gpt.chat.completions.create(**MESSAGE, stream=True)
        return [one.choices[0].delta.content or "" async for one in chunks if one.choices]

    assert asyncio.run(of_anthropic()) == ["Hel", "lo"]
    assert "".join(asyncio.run(of_openai())) == "Hello"


def test_a_tool_is_called_and_its_result_goes_back_to_anthropics_client(
    sdk: Sdk, coder: FakeCoder
) -> None:
    coder.decide = in_order(call("get_weather", city="Paris"), text("Rain."))
    tools: Any = [{"name": "get_weather", "description": "...", "input_schema": CITY}]
    with sdk.claude.messages.stream(**MESSAGE, tools=tools) as events:
        called = events.get_final_message()
    (block,) = called.content
    assert called.stop_reason == "tool_use"
    assert isinstance(block, anthropic.types.ToolUseBlock)
    assert block.input == {"city": "Paris"}
    result: Any = {"type": "tool_result", "tool_use_id": block.id, "content": "rain"}
    turns: Any = [
        *MESSAGE["messages"],
        {"role": "assistant", "content": called.content},
        {"role": "user", "content": [result]},
    ]
    with sdk.claude.messages.stream(**{**MESSAGE, "messages": turns}, tools=tools) as events:
        assert events.get_final_text() == "Rain."
    assert coder.requests[1]["messages"][-1]["content"][0]["tool_use_id"] == block.id


def test_a_tool_is_called_in_fragments_by_openais_client(sdk: Sdk, model_server: Start) -> None:
    def part(**function: str) -> bytes:
        return chunk(tool_calls=[{"index": 0, "function": function}])

    first = {"index": 0, "id": "call_1", "type": "function"}
    opened = chunk(tool_calls=[{**first, "function": {"name": "get_weather", "arguments": ""}}])
    fragments = [part(arguments=piece) for piece in ('{"ci', 'ty": "Par', 'is"}')]
    server = model_server({CHAT: chat(opened, *fragments, chunk("tool_calls"))})
    tools: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}]
    with sdk.gpt.chat.completions.stream(
        model="default", messages=MESSAGE["messages"], tools=tools
    ) as events:
        choice = events.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls
    (called,) = choice.message.tool_calls
    assert json.loads(called.function.arguments) == {"city": "Paris"}
    assert json.loads(server.bodies(CHAT)[0])["tools"] == tools


@pytest.mark.parametrize("package", ["anthropic", "openai"])
def test_a_client_that_has_waited_long_enough_frees_the_server(
    sdk: Sdk, model_server: Start, package: str
) -> None:
    server = model_server(silence)
    if package == "anthropic":
        with pytest.raises(anthropic.APITimeoutError):
            sdk.claude.with_options(timeout=0.5).messages.create(**MESSAGE)
    else:
        with pytest.raises(openai.APITimeoutError):
            sdk.gpt.with_options(timeout=0.5).chat.completions.create(**MESSAGE)
    assert server.client_left.wait(LATER)


def test_a_stream_that_is_closed_frees_the_server(sdk: Sdk, model_server: Start) -> None:
    server = model_server(STUCK)
    with sdk.claude.messages.stream(**MESSAGE) as events:
        assert next(iter(events.text_stream)) == "Hel"
    assert server.client_left.wait(LATER)

    server.client_left.clear()
    chunks = sdk.gpt.chat.completions.create(**MESSAGE, stream=True)
    assert next(iter(chunks)).choices[0].delta.content == "Hel"
    chunks.close()
    assert server.client_left.wait(LATER)


@pytest.mark.parametrize("package", ["anthropic", "openai"])
def test_an_async_request_that_is_cancelled_frees_the_server(
    sdk: Sdk, model_server: Start, package: str
) -> None:
    server = model_server(silence)

    async def cancelled() -> None:
        made = (
            sdk.async_claude.messages.create(**MESSAGE)
            if package == "anthropic"
            else sdk.async_gpt.chat.completions.create(**MESSAGE)
        )
        task = asyncio.ensure_future(made)
        while not server.requests:
            await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(cancelled(), LATER))
    assert server.client_left.wait(LATER)


def test_a_model_that_is_loaded_meanwhile_answers_the_second_try_which_waits_as_told(
    sdk: Sdk, model_server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)

    def loading_first(answer: dict[str, Any]) -> Script:
        tries = iter([b"503 Service Unavailable", b"200 OK"])

        async def script(writer: asyncio.StreamWriter) -> None:
            await whole(json.dumps(answer).encode(), status=next(tries))(writer)

        return script

    model_server({CHAT: loading_first(COMPLETION), MESSAGES: loading_first(A_MESSAGE)})
    completion = sdk.gpt.with_options(max_retries=1).chat.completions.create(**MESSAGE)
    assert completion.choices[0].message.content == "Hello."
    message = sdk.claude.with_options(max_retries=1).messages.create(**MESSAGE)
    assert isinstance(message.content[0], anthropic.types.TextBlock)
    assert message.content[0].text == "Hello."
    assert waits == [15, 15]
