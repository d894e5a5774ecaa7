"""Messages for model servers that speak OpenAI's API only, and calls that must be made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fake_upstream import FakeModelServer, Script, stream, sudden_death, whole
from tests.in_process import ask
from tests.running_gateway import CHAT, MESSAGES, Start

TOOL = {
    "name": "add",
    "description": "Adds",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/number"}},
        "$defs": {"number": {"type": "integer"}},
    },
}
OTHER = {"name": "other", "input_schema": {"type": "object"}}
MODELS = whole(b'{"data":[{"id":"m"}]}')
SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}}


def body(**more: object) -> bytes:
    asked = {
        "model": "claude-x",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}],
        **more,
    }
    return json.dumps(asked).encode()


def completion(reason: str = "stop", **message: object) -> Script:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", **message}}
    return whole(json.dumps({"choices": [choice], "usage": usage}).encode())


def chunks(*deltas: dict[str, Any], reason: str = "stop") -> list[bytes]:
    told: list[dict[str, Any]] = [{"choices": [{"delta": delta}]} for delta in deltas]
    told.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    told.append({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 3}})
    return [b"data: %s\n\n" % json.dumps(one).encode() for one in told] + [b"data: [DONE]\n\n"]


def call(index: int, name: str | None = None, arguments: str = "") -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {"index": index, "function": function, **({"id": f"call_{index}"} if name else {})}


def sent(server: FakeModelServer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(server.bodies(CHAT)[-1])
    return found


def test_a_conversation_with_tools_and_images_is_asked_in_openais_api(
    tmp_path: Path, play: Start
) -> None:
    listed = b'{"data":[{"id":"m","architecture":{"input_modalities":["text","image"]}}]}'
    server = play({CHAT: completion(content="yes"), "/v1/models": whole(listed)})
    png = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
    use = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": "2"}],
    }
    answer = ask(
        tmp_path,
        MESSAGES,
        body(
            system=[{"type": "text", "text": "be good"}],
            tools=[TOOL],
            tool_choice={"type": "tool", "name": "add"},
            stop_sequences=["END"],
            messages=[
                {"role": "user", "content": [png, {"type": "text", "text": "add"}]},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, use]},
                {"role": "user", "content": [result, {"type": "text", "text": "and?"}]},
            ],
        ),
        openai_only=True,
    )
    assert answer.json()["content"] == [{"type": "text", "text": "yes"}]
    asked = sent(server)
    assert [message["role"] for message in asked["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
    ]
    _, user, assistant, tool, last = asked["messages"]
    assert user["content"][0]["image_url"] == {"url": "data:image/png;base64,AA"}
    assert assistant["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a":1}'}
    assert (tool["tool_call_id"], tool["content"], last["content"]) == ("t1", "2", "and?")
    assert asked["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert asked["tools"][0]["function"]["parameters"] == TOOL["input_schema"]
    assert asked["stop"] == ["END"]


@pytest.mark.parametrize(
    ("reason", "told"), [("stop", "end_turn"), ("length", "max_tokens"), ("tool_calls", "tool_use")]
)
def test_a_whole_answer_is_told_as_a_message(
    tmp_path: Path, play: Start, reason: str, told: str
) -> None:
    calls = [call(0, "add", '{"a":1}')]
    said = completion(reason, content="text", reasoning_content="hm", tool_calls=calls)
    play({CHAT: said, "/v1/models": MODELS})
    message = ask(tmp_path, MESSAGES, body(), openai_only=True).json()
    assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use"]
    assert message["content"][2] == {
        "type": "tool_use",
        "id": "call_0",
        "name": "add",
        "input": {"a": 1},
    }
    assert (message["model"], message["stop_reason"]) == ("claude-x", told)
    assert message["usage"] == {
        "input_tokens": 6,
        "cache_read_input_tokens": 4,
        "output_tokens": 3,
    }


def test_a_stream_of_thinking_text_and_calls_in_fragments_is_told_block_by_block(
    tmp_path: Path, play: Start
) -> None:
    deltas = (
        {"role": "assistant", "content": None},
        {"reasoning_content": "h"},
        {"reasoning_content": "m"},
        {"content": "te"},
        {"content": "xt"},
        {"tool_calls": [call(0, "add")]},
        {"tool_calls": [call(0, None, '{"a"')]},
        {"tool_calls": [call(0, None, ":1}")]},
        {"tool_calls": [call(1, "other", "{}")]},
    )
    play({CHAT: stream(*chunks(*deltas, reason="tool_calls")), "/v1/models": MODELS})
    events = ask(tmp_path, MESSAGES, body(stream=True), openai_only=True).events()
    blocks = [event["content_block"] for event in events if "content_block" in event]
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block.get("name") for block in blocks[2:]] == ["add", "other"]
    deltas_of_2 = [one["delta"] for one in events if one.get("index") == 2 and "delta" in one]
    given = [delta["partial_json"] for delta in deltas_of_2]
    assert "".join(given) == '{"a":1}'
    order = [(one["type"], one["index"]) for one in events if "index" in one]
    stops = [order.index(("content_block_stop", index)) for index in range(4)]
    starts = [order.index(("content_block_start", index)) for index in range(4)]
    assert all(stop < start for stop, start in zip(stops, starts[1:], strict=False))
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    assert events[-2]["usage"]["input_tokens"] == 10


@pytest.mark.parametrize(
    "ending",
    [
        stream(*chunks({"content": "a"})[:1]),
        stream(*chunks({"content": "a"})[:1], then=sudden_death),
    ],
)
def test_a_translated_stream_that_breaks_off_is_told_as_an_error(
    tmp_path: Path, play: Start, ending: Script
) -> None:
    play({CHAT: ending, "/v1/models": MODELS})
    events = ask(tmp_path, MESSAGES, body(stream=True), openai_only=True).events()
    assert (events[-1]["type"], events[-1]["error"]["type"]) == ("error", "api_error")


def test_an_error_in_a_translated_stream_is_told(tmp_path: Path, play: Start) -> None:
    failed = stream(b'data: {"error":{"message":"Compute error.","code":500}}\n\n')
    play({CHAT: failed, "/v1/models": MODELS})
    events = ask(tmp_path, MESSAGES, body(stream=True), openai_only=True).events()
    assert events[-1]["error"]["message"] == "Compute error."


def test_an_answer_of_another_shape_is_the_servers_fault(tmp_path: Path, play: Start) -> None:
    play({CHAT: whole(b'{"choices":[]}'), "/v1/models": MODELS})
    assert ask(tmp_path, MESSAGES, body(), openai_only=True).status == 502


def test_tokens_are_counted_by_the_servers_own_tokenizer(tmp_path: Path, play: Start) -> None:
    server = play({"/tokenize": whole(b'{"count":17}'), "/v1/models": MODELS})
    answer = ask(tmp_path, f"{MESSAGES}/count_tokens", body(tools=[TOOL]), openai_only=True)
    assert answer.json() == {"input_tokens": 17}
    asked = json.loads(server.bodies("/tokenize")[0])
    assert asked["messages"] == [{"role": "user", "content": "hi"}]
    assert asked["tools"][0]["function"]["name"] == "add"


@pytest.mark.parametrize(
    ("path", "told"),
    [(MESSAGES, "prompt is too long"), (CHAT, "context_length_exceeded")],
)
def test_a_prompt_that_an_older_llama_cpp_finds_too_long_is_told_as_clients_know_it(
    tmp_path: Path, play: Start, path: str, told: str
) -> None:
    said = b'{"error":{"code":400,"message":"the request exceeds the available context size. try"}}'
    play({CHAT: whole(said, status=b"400 Bad Request"), "/v1/models": MODELS})
    answer = ask(tmp_path, path, body(), openai_only=True)
    assert answer.status == 400
    assert told in json.dumps(answer.json())


def test_an_older_llama_cpp_counts_the_tokens_of_what_its_template_makes(
    tmp_path: Path, play: Start
) -> None:
    server = play(
        {
            "/tokenize": whole(b'{"tokens":[7,8,9]}'),
            "/apply-template": whole(b'{"prompt":"<user>hi"}'),
            "/v1/models": MODELS,
        }
    )
    answer = ask(tmp_path, f"{MESSAGES}/count_tokens", body(tools=[TOOL]), openai_only=True)
    assert answer.json() == {"input_tokens": 3}
    asked = json.loads(server.bodies("/tokenize")[-1])
    assert asked == {"content": "<user>hi", "add_special": True}


@pytest.mark.parametrize(("asked", "served"), [("claude-x", "org/real"), ("other", "other")])
@pytest.mark.parametrize("path", [MESSAGES, CHAT])
def test_a_server_is_asked_by_a_name_that_it_serves_and_the_client_gets_its_own(
    tmp_path: Path, play: Start, path: str, asked: str, served: str
) -> None:
    listed = whole(b'{"data":[{"id":"org/real"},{"id":"other"}]}')
    answer = whole(b'{"model":"org/real","choices":[{"message":{"content":"a"}}]}')
    server = play({CHAT: answer, "/v1/models": listed})
    told = ask(tmp_path, path, body(model=asked), openai_only=True).json()
    assert sent(server)["model"] == served
    assert told["model"] == asked


def test_a_schema_of_the_answer_reaches_llama_cpp(tmp_path: Path, play: Start) -> None:
    server = play({CHAT: completion(content='{"title":"a"}')})
    wanted = {"type": "json_schema", "schema": SCHEMA}
    for asked in ({"output_config": {"format": wanted}}, {"output_format": wanted}):
        answer = ask(tmp_path, MESSAGES, body(**asked))
        assert answer.json()["content"][0]["text"] == '{"title":"a"}'
        assert sent(server)["response_format"]["json_schema"]["schema"] == SCHEMA


@pytest.mark.parametrize("streamed", [False, True])
def test_no_second_tool_call_when_the_client_wants_one_only(
    tmp_path: Path, play: Start, streamed: bool
) -> None:
    calls = [call(0, "add", "{}"), call(1, "add", "{}")]
    whole_one = completion("length", content=None, tool_calls=calls)
    server = play({CHAT: stream(*chunks({"tool_calls": calls})) if streamed else whole_one})
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    answer = ask(tmp_path, MESSAGES, body(tools=[TOOL], tool_choice=choice, stream=streamed))
    assert answer.body.count(b'"tool_use","id"') == 1
    assert b'"stop_reason":"tool_use"' in answer.body
    assert sent(server)["parallel_tool_calls"] is False


def test_tools_are_not_called_when_the_client_wants_none(tmp_path: Path, play: Start) -> None:
    server = play({CHAT: completion(content="a")})
    ask(tmp_path, MESSAGES, body(tools=[TOOL], tool_choice={"type": "none"}))
    assert sent(server)["tool_choice"] == "none"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "add"}])
def test_a_call_that_must_be_made_is_made(
    tmp_path: Path, play: Start, choice: dict[str, str], streamed: bool
) -> None:
    words = '{"name":"add", "arguments":{"a":1}}'
    parts = stream(*chunks({"content": words[:9]}, {"content": words[9:]}))
    server = play({CHAT: parts if streamed else completion(content=words)})
    asked = body(tools=[TOOL, OTHER], tool_choice=choice, stream=streamed)
    answer = ask(tmp_path, MESSAGES, asked)
    if streamed:
        events = answer.events()
        block = events[1]["content_block"]
        given, stop = json.loads(events[2]["delta"]["partial_json"]), events[-2]["delta"]
    else:
        stop = answer.json()
        block = stop["content"][0]
        given = block["input"]
    assert (block["type"], block["name"], given) == ("tool_use", "add", {"a": 1})
    assert stop["stop_reason"] == "tool_use"
    schema = sent(server)["response_format"]["json_schema"]["schema"]
    one = schema["anyOf"][0] if choice["type"] == "any" else schema
    assert one["properties"]["name"] == {"const": "add"}
    assert schema["$defs"] == {"number": {"type": "integer"}}
    assert len(sent(server)["tools"]) == 2


def test_a_call_that_was_cut_off_has_the_reason(tmp_path: Path, play: Start) -> None:
    play({CHAT: completion("length", content='{"name":"add","argu')})
    asked = body(tools=[TOOL], tool_choice={"type": "any"})
    message = ask(tmp_path, MESSAGES, asked).json()
    assert (message["content"], message["stop_reason"]) == ([], "max_tokens")


def test_a_call_of_a_tool_that_is_not_there_is_refused(tmp_path: Path) -> None:
    choice = {"type": "tool", "name": "nothing"}
    answer = ask(tmp_path, MESSAGES, body(tools=[TOOL], tool_choice=choice))
    assert answer.status == 400
    assert "nothing" in answer.json()["error"]["message"]


def test_a_named_function_of_openais_api_is_the_only_one_and_required(
    tmp_path: Path, play: Start
) -> None:
    server = play({CHAT: completion(content="a")})
    tools = [{"type": "function", "function": {"name": name}} for name in ("add", "other")]
    choice = {"type": "function", "function": {"name": "other"}}
    ask(tmp_path, CHAT, body(tools=tools, tool_choice=choice))
    assert (sent(server)["tools"], sent(server)["tool_choice"]) == (tools[1:], "required")


def test_a_name_of_no_utf_8_in_a_request_is_the_clients_mistake(
    tmp_path: Path, play: Start
) -> None:
    play({"/v1/models": MODELS})
    answer = ask(tmp_path, CHAT, b'{"\x80":1,"messages":[{}]}', openai_only=True)
    assert answer.status == 400
    assert "UTF-8" in answer.json()["error"]["message"]
