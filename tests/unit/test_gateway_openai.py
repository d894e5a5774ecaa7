"""OpenAI's Responses API, completions with a suffix, the list of models, and the page at /."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fake_upstream import LOADING, error, stream, whole
from tests.in_process import ask
from tests.running_gateway import CHAT, Start

COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
ANTHROPIC = {"anthropic-version": "2023-06-01"}


def response(tokens: int) -> dict[str, Any]:
    """What llama.cpp's server says of every response, cut off or not."""
    return {
        "id": "resp_1",
        "model": "default",
        "status": "completed",
        "output": [{"type": "message", "status": "completed"}],
        "usage": {"output_tokens": tokens},
    }


def asked(**more: object) -> bytes:
    return json.dumps({"model": "gpt-x", "input": "hi", "max_output_tokens": 5, **more}).encode()


@pytest.mark.parametrize(("tokens", "status"), [(4, "completed"), (5, "incomplete")])
def test_a_response_that_was_cut_off_is_incomplete(
    tmp_path: Path, play: Start, tokens: int, status: str
) -> None:
    play({RESPONSES: whole(json.dumps(response(tokens)).encode())})
    told = ask(tmp_path, RESPONSES, asked()).json()
    assert (told["status"], told["output"][0]["status"]) == (status, status)
    assert told["model"] == "gpt-x"
    reason = told.get("incomplete_details")
    assert reason == (None if status == "completed" else {"reason": "max_output_tokens"})


@pytest.mark.parametrize(("tokens", "status"), [(4, "completed"), (5, "incomplete")])
def test_a_stream_of_a_response_ends_with_its_true_event(
    tmp_path: Path, play: Start, tokens: int, status: str
) -> None:
    ended = {"type": "response.completed", "response": response(tokens)}
    events = b'event: response.created\ndata: {"type":"response.created"}\n\n'
    last = b"event: response.completed\ndata: %s\n\n" % json.dumps(ended).encode()
    play({RESPONSES: stream(events, last)})
    body = ask(tmp_path, RESPONSES, asked(stream=True)).body
    name, data = body.decode().split("\n\n")[-2].split("\n")
    told = json.loads(data.removeprefix("data: "))
    assert name == f"event: response.{status}" == f"event: {told['type']}"
    assert (told["response"]["status"], told["response"]["model"]) == (status, "gpt-x")


def test_the_events_of_a_response_have_the_numbers_of_their_places(
    tmp_path: Path, play: Start
) -> None:
    told: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.added", "item": {"type": "reasoning", "id": "rs_1"}},
        {"type": "response.reasoning_text.delta", "item_id": "rs_1", "delta": '"id":"fc_0"'},
        {"type": "response.output_item.added", "item": {"type": "message", "id": "msg_1"}},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "a"},
        {"type": "response.output_item.added", "item": {"type": "function_call", "id": "fc_1"}},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{}"},
        {"type": "response.output_item.done", "item": {"type": "reasoning", "id": "rs_1"}},
        {"type": "response.output_item.done", "item": {"type": "function_call", "id": "fc_1"}},
        {"type": "response.completed", "response": response(1)},
    ]
    play(stream(*(b"event: %s\ndata: %s\n\n" % (e["type"].encode(), _compact(e)) for e in told)))
    lines = ask(tmp_path, RESPONSES, asked(stream=True)).body.splitlines()
    found = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
    assert [event["sequence_number"] for event in found] == list(range(10))
    places = [event.get("output_index") for event in found]
    assert places == [None, 0, 0, 1, 1, 2, 2, 0, 2, None]


def _compact(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


def test_a_stream_of_a_response_that_breaks_off_is_told_as_an_error(
    tmp_path: Path, play: Start
) -> None:
    play({RESPONSES: stream(b'event: response.created\ndata: {"type":"response.created"}\n\n')})
    assert b'"error"' in ask(tmp_path, RESPONSES, asked(stream=True)).body


def filled(content: str, stop: str | None = None) -> dict[str, Any]:
    """What llama.cpp's /infill says."""
    ended = {"stop_type": stop, "tokens_evaluated": 6, "tokens_predicted": 2} if stop else {}
    return {"content": content, "stop": stop is not None, **ended}


def gap(**more: object) -> bytes:
    return json.dumps({"model": "gpt-x", "prompt": "a(", "suffix": ")", **more}).encode()


@pytest.mark.parametrize(
    ("stop", "reason"), [("eos", "stop"), ("word", "stop"), ("limit", "length")]
)
def test_a_completion_with_a_suffix_fills_the_gap(
    tmp_path: Path, play: Start, stop: str, reason: str
) -> None:
    server = play({"/infill": whole(json.dumps(filled("b", stop)).encode())})
    told = ask(tmp_path, COMPLETIONS, gap(max_tokens=7, temperature=0)).json()
    (choice,) = told["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("b", reason)
    assert (told["object"], told["model"]) == ("text_completion", "gpt-x")
    assert told["usage"]["total_tokens"] == 8
    assert json.loads(server.bodies("/infill")[0]) == {
        "input_prefix": "a(",
        "input_suffix": ")",
        "n_predict": 7,
        "temperature": 0,
    }


def test_a_streamed_completion_with_a_suffix_comes_in_parts(tmp_path: Path, play: Start) -> None:
    parts = [filled("b"), filled("c"), filled("", "eos")]
    play({"/infill": stream(*(b"data: %s\n\n" % json.dumps(one).encode() for one in parts))})
    *events, done, _ = ask(tmp_path, COMPLETIONS, gap(stream=True)).body.decode().split("\n\n")
    told = [json.loads(event.removeprefix("data: ")) for event in events]
    assert "".join(one["choices"][0]["text"] for one in told) == "bc"
    assert [one["choices"][0]["finish_reason"] for one in told] == [None, None, "stop"]
    assert done == "data: [DONE]"


def test_a_model_that_cannot_fill_gaps_is_the_clients_mistake(tmp_path: Path, play: Start) -> None:
    message = "Infill is not supported by this model: prefix token is missing. "
    play({"/infill": error(b"501 Not Implemented", code=501, message=message, type="x")})
    answer = ask(tmp_path, COMPLETIONS, gap())
    assert (answer.status, answer.json()["error"]["message"]) == (400, message)


def test_a_completion_without_a_suffix_and_infill_itself_pass_as_they_are(
    tmp_path: Path, play: Start
) -> None:
    server = play(whole(b'{"model":"default"}'))
    for path, content in ((COMPLETIONS, b'{"prompt": "a"}'), ("/infill", b'{"input_prefix":"a"}')):
        assert ask(tmp_path, path, content).status == 200
        assert server.bodies(path) == [content]


@pytest.mark.parametrize("content", [b"", b"[]", b"no", b'{"stream":3}', b'{"model":[]}', b"\xff"])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES])
def test_what_is_no_request_is_the_clients_mistake(
    tmp_path: Path, path: str, content: bytes
) -> None:
    answer = ask(tmp_path, path, content)
    assert (answer.status, answer.json()["error"]["type"]) == (400, "invalid_request_error")


MODELS = whole(
    b'{"object":"list","data":[{"id":"default","aliases":["default","a","b"],"object":"model",'
    b'"created":1700000000,"meta":{"n_ctx":8192}}]}'
)


def listed(folder: Path, query: str = "", path: str = "/v1/models") -> Any:
    return ask(folder, path, b"", method="GET", query=query, headers=ANTHROPIC)


def test_anthropics_clients_get_their_own_list_page_by_page(tmp_path: Path, play: Start) -> None:
    play(MODELS)
    told = listed(tmp_path).json()
    assert told["data"][0] == {
        "type": "model",
        "id": "default",
        "display_name": "default",
        "created_at": "2023-11-14T22:13:20Z",
    }
    pages = {
        "limit=1000": (["default", "a", "b"], False),
        "limit=2": (["default", "a"], True),
        "after_id=default": (["a", "b"], False),
        "after_id=default&limit=1": (["a"], True),
        "before_id=b&limit=1": (["a"], True),
        "before_id=a": (["default"], False),
        "after_id=b": ([], False),
    }
    for query, (names, more) in pages.items():
        told = listed(tmp_path, query).json()
        assert ([model["id"] for model in told["data"]], told["has_more"]) == (names, more)
        ends = (told["first_id"], told["last_id"])
        assert ends == ((names[0], names[-1]) if names else (None, None))


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x", "%C2%B2"])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, play: Start, limit: str) -> None:
    play(MODELS)
    answer = listed(tmp_path, f"limit={limit}")
    assert (answer.status, answer.json()["type"]) == (400, "error")


@pytest.mark.parametrize("name", ["claude-sonnet-4-5", "gpt-4o", "o3-mini", "a"])
def test_the_names_that_clients_insist_on_are_found(tmp_path: Path, play: Start, name: str) -> None:
    play(MODELS)
    told = listed(tmp_path, path=f"/v1/models/{name}").json()
    assert (told["type"], told["id"]) == ("model", name)
    told = ask(tmp_path, f"/v1/models/{name}", b"", method="GET").json()
    assert (told["object"], told["id"]) == ("model", name)


def test_a_model_that_nobody_knows_is_not_found(tmp_path: Path, play: Start) -> None:
    play(MODELS)
    answer = listed(tmp_path, path="/v1/models/llama")
    assert (answer.status, answer.json()["error"]["type"]) == (404, "not_found_error")


def page(folder: Path, **headers: str) -> Any:
    return ask(folder, "/", b"", method="GET", headers={"x-api-key": "", **headers})


def test_the_page_says_what_runs_and_how_to_connect(tmp_path: Path, play: Start) -> None:
    play(MODELS)
    answer = page(tmp_path, host="box:8080")
    text = answer.body.decode()
    assert answer.headers["content-type"].startswith("text/html")
    assert "default" in text
    assert "8,192 tokens" in text
    assert "ANTHROPIC_BASE_URL=http://box:8080" in text
    assert "http://box:8080/v1" in text


def test_the_page_loads_nothing_and_tells_no_key(tmp_path: Path, play: Start) -> None:
    play(MODELS)
    text = page(tmp_path, host='"><script>alert(1)</script>').body.decode()
    assert "<script" not in text
    assert "src=" not in text
    assert "zs-the-right-key" not in text


def test_the_page_says_what_is_missing(tmp_path: Path, play: Start) -> None:
    assert "not running" in page(tmp_path).body.decode()
    play(LOADING)
    assert "being loaded" in page(tmp_path).body.decode()
