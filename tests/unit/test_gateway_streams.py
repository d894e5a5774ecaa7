"""Streams: begun in time, kept alive, edited at their ends, ended in their dialect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fake_upstream import (
    LOADING,
    Script,
    error,
    message_events,
    silence,
    stream,
    sudden_death,
    whole,
)
from tests.in_process import Answer, ask
from tests.running_gateway import CHAT, MESSAGES, Start

COUNT = f"{MESSAGES}/count_tokens"
MODELS = whole(b'{"data":[{"id":"default","meta":{"n_ctx":100}}]}')

Ask = Callable[..., Answer]


def body(**more: object) -> bytes:
    asked = {
        "model": "claude-x",
        "max_tokens": 9,
        "stream": True,
        "messages": [{"role": "user", "content": "hi"}],
        **more,
    }
    return json.dumps(asked).encode()


def after(seconds: float, script: Script) -> Script:
    """`script` with a slow first byte."""

    async def late(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        await script(writer)

    return late


def in_turn(*scripts: Script) -> Script:
    """The first script for the first request, and so on; the last for all others."""
    left = list(scripts)

    async def next_one(writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(writer)

    return next_one


def types(answer: Answer) -> list[str]:
    return [event["type"] for event in answer.events()]


def without_pings(told: list[str]) -> list[str]:
    """A slow machine has them anywhere."""
    return [kind for kind in told if kind != "ping"]


def said(answer: Answer) -> str:
    return "".join(event.get("delta", {}).get("text", "") for event in answer.events())


PLAIN = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
]


def test_only_the_ends_of_a_stream_are_edited(tmp_path: Path, play: Start) -> None:
    odd = b'event: content_block_delta\ndata: {"type": "content_block_delta",  "x":"\xc3\xa4"}\n\n'
    first, *_, last = message_events()
    play(stream(first, odd, last))
    answer = ask(tmp_path, MESSAGES, body())
    assert odd in answer.body
    start, *_, delta, _ = answer.events()
    assert start["message"]["model"] == "claude-x"
    assert start["message"]["usage"]["input_tokens"] == 7
    assert delta["usage"] == {
        "cache_read_input_tokens": 5,
        "input_tokens": 7,
        "output_tokens": 0,
    }


def test_events_that_come_in_pieces_are_put_together(tmp_path: Path, play: Start) -> None:
    data = b"".join(message_events("Grüße, 世界"))
    play(stream(*(data[at : at + 7] for at in range(0, len(data), 7))))
    answer = ask(tmp_path, MESSAGES, body())
    assert without_pings(types(answer)) == PLAIN
    assert said(answer) == "Grüße, 世界"


def test_a_huge_event_passes_whole(tmp_path: Path, play: Start) -> None:
    text = "x" * 3_000_000
    data = b"".join(message_events(text))
    play(stream(*(data[at : at + 60_000] for at in range(0, len(data), 60_000))))
    assert said(ask(tmp_path, MESSAGES, body())) == text


def test_a_message_start_that_the_server_leaves_out_is_made_up(tmp_path: Path, play: Start) -> None:
    first, *others = message_events("a")
    play(stream(first.partition(b"\n\n")[2], *others))
    answer = ask(tmp_path, MESSAGES, body())
    assert without_pings(types(answer)) == PLAIN
    message = answer.events()[0]["message"]
    assert (message["model"], message["content"], message["role"]) == ("claude-x", [], "assistant")


@pytest.mark.parametrize(
    ("stop", "told"),
    [("END", ("stop_sequence", "END")), ("<|im_end|>", ("end_turn", None))],
)
def test_a_stop_sequence_is_told_as_one_when_it_is_the_clients(
    tmp_path: Path, play: Start, stop: str, told: tuple[str, str | None]
) -> None:
    play(stream(*message_events("a", stop=stop)))
    delta = ask(tmp_path, MESSAGES, body(stop_sequences=["END"])).events()[-2]["delta"]
    assert (delta["stop_reason"], delta["stop_sequence"]) == told


def test_a_late_answer_begins_with_an_own_message_start_and_pings(
    tmp_path: Path, play: Start
) -> None:
    counted = whole(b'{"input_tokens":12}')
    late = after(1.2, stream(*message_events("a")))
    play({MESSAGES: late, COUNT: counted, "/v1/models": MODELS})
    answer = ask(tmp_path, MESSAGES, body())
    told = types(answer)
    assert told[0] == "message_start"
    assert 2 <= told.count("ping") <= 8
    assert without_pings(told) == PLAIN
    assert answer.events()[0]["message"]["usage"]["input_tokens"] == 12
    assert answer.events()[-2]["usage"]["input_tokens"] == 7


def test_pings_come_while_the_server_reads_the_prompt_and_when_it_pauses(
    tmp_path: Path, play: Start
) -> None:
    first, text, last = message_events("a")

    async def paused(writer: asyncio.StreamWriter) -> None:
        await stream(then=_nothing)(writer)
        for chunk in (b":\n\n", first, text, last):
            await asyncio.sleep(0.6)
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    play({MESSAGES: paused})
    told = types(ask(tmp_path, MESSAGES, body()))
    assert told[0] == "message_start"
    assert told.index("ping") < told.index("content_block_start")
    between = told[told.index("content_block_start") : told.index("message_delta")]
    assert "ping" in between
    assert without_pings(told) == PLAIN


async def _nothing(_writer: asyncio.StreamWriter) -> None:
    pass


def test_a_prompt_that_is_too_long_is_refused_while_it_waits_for_its_turn(
    tmp_path: Path, play: Start
) -> None:
    server = play({MESSAGES: silence, COUNT: whole(b'{"input_tokens":100}'), "/v1/models": MODELS})
    answer = ask(tmp_path, MESSAGES, body())
    assert answer.status == 400
    assert answer.json()["error"]["message"] == "prompt is too long: 100 tokens > 100 maximum"
    assert server.client_left.wait(5)


def test_a_chat_that_is_too_long_is_refused_while_it_waits_for_its_turn(
    tmp_path: Path, play: Start
) -> None:
    counted = whole(b'{"input_tokens":100}')
    play({CHAT: silence, f"{CHAT}/input_tokens": counted, "/v1/models": MODELS})
    answer = ask(tmp_path, CHAT, body())
    assert (answer.status, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


def test_a_stream_waits_until_the_model_is_loaded(tmp_path: Path, play: Start) -> None:
    loaded = stream(*message_events("a"))
    play({MESSAGES: in_turn(*[LOADING] * 20, loaded), COUNT: LOADING})
    answer = ask(tmp_path, MESSAGES, body())
    told = types(answer)
    assert answer.status == 200
    assert told[0] == "message_start"
    assert "ping" in told
    assert without_pings(told) == PLAIN


def test_a_model_server_that_stays_away_is_given_up_with_an_error_event(tmp_path: Path) -> None:
    last = ask(tmp_path, MESSAGES, body()).events()[-1]
    assert (last["type"], last["error"]["type"]) == ("error", "overloaded_error")


@pytest.mark.parametrize("then", [sudden_death, None])
def test_a_stream_that_ends_before_its_answer_does_is_told_as_an_error(
    tmp_path: Path, play: Start, then: Script | None
) -> None:
    first, text, _ = message_events("a")
    play(stream(first, text, text[:20], then=then))
    told = ask(tmp_path, MESSAGES, body()).events()
    assert told[-2]["type"] == "content_block_delta"
    assert (told[-1]["type"], told[-1]["error"]["type"]) == ("error", "api_error")


def test_an_error_of_the_server_in_a_stream_has_anthropics_shape(
    tmp_path: Path, play: Start
) -> None:
    first, text, _ = message_events("a")
    failed = (
        b'event: error\ndata: {"code":500,"message":"Compute error.","type":"server_error"}\n\n'
    )
    play(stream(first, text, failed))
    last = ask(tmp_path, MESSAGES, body()).events()[-1]
    assert last["error"] == {"type": "api_error", "message": "Compute error."}
    assert last["request_id"].startswith("req_")


def test_an_error_after_the_own_message_start_is_an_event(tmp_path: Path, play: Start) -> None:
    refused = error(b"400 Bad Request", code=400, message="no", type="invalid_request_error")
    play({MESSAGES: after(0.9, refused)})
    answer = ask(tmp_path, MESSAGES, body())
    assert answer.status == 200
    assert answer.events()[-1]["error"] == {"type": "invalid_request_error", "message": "no"}


def test_a_chat_gets_comments_while_it_waits_and_the_name_that_was_asked_for(
    tmp_path: Path, play: Start
) -> None:
    chunk = b'data: {"choices":[],"model":"default","id":"1"}\n\n'
    play({CHAT: after(0.9, stream(chunk, chunk, b"data: [DONE]\n\n"))})
    told = ask(tmp_path, CHAT, body()).body
    assert told.startswith(b": ")
    assert told.count(b'"model":"claude-x"') == 2
    assert b'"default"' not in told


def test_a_chat_without_its_end_is_told_as_an_error(tmp_path: Path, play: Start) -> None:
    play(stream(b'data: {"choices":[]}\n\n'))
    last = ask(tmp_path, CHAT, body()).body.decode().split("\n\n")[-2]
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error"


def test_a_context_that_overflows_in_a_chat_stream_has_openais_code(
    tmp_path: Path, play: Start
) -> None:
    told = {"code": 400, "message": "m", "n_prompt_tokens": 9, "n_ctx": 5}
    play(stream(b"data: %s\n\n" % json.dumps({"error": told}).encode()))
    last = ask(tmp_path, CHAT, body()).body.decode().split("\n\n")[-2]
    error_told: dict[str, Any] = json.loads(last.removeprefix("data: "))["error"]
    assert error_told["code"] == "context_length_exceeded"
