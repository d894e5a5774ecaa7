"""What the client makes of answers: whole ones, broken ones, and when their pieces came."""

from __future__ import annotations

import http.client
import json
from functools import partial

import pytest

from tests.fake_slow_proxy import fake_slow_proxy
from tests.unit.fake_streams import FakeStreams, fake_streams
from zluda_stack.bench import load
from zluda_stack.bench.load import Server
from zluda_stack.bench.prompts import Prompt, all_prompts, asked, digest

PROMPT = Prompt(name="p", text="Say it.", about=10, answer=5)


def server(port: int, key: str | None = None) -> Server:
    connect = partial(http.client.HTTPConnection, "127.0.0.1", port, timeout=10)
    return Server(connect, "the-model", key=key, extra={"ignore_eos": True})


def pieces(*events: object, end: bool = True) -> list[tuple[float, bytes]]:
    """Events as a stream, one a second."""
    told = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    told += [b"data: [DONE]\n\n"] if end else []
    return [(float(second), data) for second, data in enumerate(told)]


def says(text: str | None, finish: str | None = None) -> dict[str, object]:
    return {"choices": [{"delta": {"content": text}, "finish_reason": finish}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}


def test_an_answer_has_its_tokens_from_the_server_and_its_times_from_the_client() -> None:
    does = FakeStreams(tokens=5, gap=0.02)
    with fake_streams(does) as port:
        (answer,), seconds = load.wave(server(port, "zs-k"), PROMPT, 1, cached=False)
    assert answer.fault == ""
    assert (answer.prompt_tokens, answer.cached_tokens, answer.tokens) == (30, 4, 5)
    assert 0.02 <= answer.first < answer.last < seconds
    assert len(answer.gaps) == 4
    assert sum(answer.gaps) == pytest.approx(answer.last - answer.first, abs=1e-4)
    body = does.asked[0]
    assert body["max_tokens"] == 5
    assert body["temperature"] == 0
    assert body["ignore_eos"]
    assert body["stream_options"] == {"include_usage": True}
    assert does.keys == ["Bearer zs-k"]


def test_several_clients_ask_at_once() -> None:
    does = FakeStreams(tokens=5, gap=0.05)
    with fake_streams(does) as port:
        answers, seconds = load.wave(server(port), PROMPT, 4, cached=False)
    assert len(answers) == 4
    assert not any(answer.fault for answer in answers)
    assert seconds < 4 * 5 * 0.05


def test_no_two_requests_begin_alike_unless_the_cache_is_wanted() -> None:
    does = FakeStreams()
    with fake_streams(does) as port:
        for cached in (False, False, True, True):
            load.wave(server(port), PROMPT, 1, cached=cached)
    first = [body["messages"][0]["content"].splitlines()[0] for body in does.asked]
    assert len(set(first)) == 3
    assert len({len(line) for line in first}) == 1


@pytest.mark.parametrize(
    ("does", "fault"),
    [
        (FakeStreams(fails=1), "HTTP 500: not today"),
        (FakeStreams(whole=False), "not whole"),
        (FakeStreams(usage=False), "does not say how many tokens"),
        (FakeStreams(tokens=0), "empty"),
    ],
)
def test_what_is_not_a_whole_answer_counts_as_a_fault(does: FakeStreams, fault: str) -> None:
    with fake_streams(does) as port:
        (answer,), _ = load.wave(server(port), PROMPT, 1, cached=False)
    assert fault in answer.fault


def test_a_server_that_is_not_there_is_a_fault_and_no_crash() -> None:
    with fake_streams(FakeStreams()) as port:
        pass
    answers, _ = load.wave(server(port), PROMPT, 2, cached=False)
    assert all("no connection" in answer.fault for answer in answers)


def test_the_first_token_is_the_first_text_and_thoughts_are_text() -> None:
    thought = {"choices": [{"delta": {"reasoning_content": "Hm"}}]}
    answer = load.read(pieces(says(None), thought, says("b"), says(None, "stop"), USAGE))
    assert (answer.first, answer.last, answer.gaps) == (1.0, 2.0, (1.0,))


def test_events_that_are_cut_anywhere_are_read_all_the_same() -> None:
    stream = b"".join(data for _, data in pieces(says("a"), says("b"), says(None, "stop"), USAGE))
    for size in (1, 7, 64):
        cut = [(at, stream[at : at + size]) for at in range(0, len(stream), size)]
        assert load.read([(float(at), data) for at, data in cut]).tokens == 2


@pytest.mark.parametrize(
    "stream",
    [
        pieces({"error": {"message": "died"}}),
        pieces(says("a"), USAGE),
        pieces(says("a"), says(None, "stop"), USAGE, end=False),
        pieces(says("a", "content_filter"), USAGE),
        [(0.0, b"data: {broken\n\n")],
        [(0.0, b"data: \xff\xfe\n\n")],
        [(0.0, b'data: {"choices": 5}\n\n')],
        [(0.0, b"data: [1]\n\n")],
        [],
    ],
)
def test_a_stream_that_breaks_the_protocol_is_a_fault(stream: list[tuple[float, bytes]]) -> None:
    assert load.read(stream).fault


def test_the_fake_slow_proxy_makes_all_of_an_answer_take_longer() -> None:
    with fake_streams(FakeStreams(tokens=10, gap=0.02)) as port, fake_slow_proxy(port, 2.0) as slow:
        (straight,), _ = load.wave(server(port), PROMPT, 1, cached=False)
        (slowed,), _ = load.wave(server(slow), PROMPT, 1, cached=False)
    assert slowed.fault == ""
    assert slowed.last > 1.5 * straight.last


def test_the_prompts_are_the_same_each_time_and_as_long_as_they_say() -> None:
    prompts = all_prompts()
    assert {name: digest([one]) for name, one in prompts.items()} == {
        name: digest([one]) for name, one in all_prompts().items()
    }
    for prompt in prompts.values():
        # Three to five characters a token are what code and English take.
        assert 2.5 < len(asked(prompt, cached=False)) / prompt.about < 5
