"""Whatever a client sends and whatever the model server does: the endpoint keeps its word.

No 5xx of its own making, every error in the shape of the caller's dialect and with its id, every
answer as the OpenAPI description says, nothing of a prompt or a key in a log, nothing left over.

ENDPOINT_REQUESTS is how many requests are sent, half of them before a model server that speaks
OpenAI's API only. Without it they are few, and the same every time.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import described
from tests.fake_moods import (
    FAILING_MOODS,
    GOOD_MOODS,
    REFUSING_MOODS,
    SLOW_MOODS,
    WELL,
    FakeMoodyServer,
    Mood,
)
from tests.hostile_requests import KEY_MARK, PROMPT_MARK, Asked
from tests.hostile_requests import requests as any_requests
from tests.loud_endpoint import Got, LoudEndpoint, until

WANTED = os.environ.get("ENDPOINT_REQUESTS")
REQUESTS = int(WANTED or "1000") // 2
ID = re.compile(r"req_[0-9a-f]{24}")
ENDS = (
    *(b"data: [DONE]\n\n", b"event: message_stop\n"),
    *(b"event: response.completed\n", b"event: response.incomplete\n"),
)
FOR_EVERYONE = {"/v1/models"}  # for the page at /, whose client may have left long ago
FORWARDED = {"/infill", "/v1/embeddings"}  # whose answers pass as they are
OWN_FAILURE = b"the endpoint failed"

moods = st.sampled_from((*GOOD_MOODS * 12, *FAILING_MOODS * 2, *REFUSING_MOODS * 4, *SLOW_MOODS))


@pytest.fixture(params=["llama.cpp", "openai"])
def endpoint(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LoudEndpoint]:
    running = LoudEndpoint(tmp_path, request.param)
    yield running
    running.stop()


@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
def test_the_endpoint_keeps_its_word_whatever_is_sent_to_it(endpoint: LoudEndpoint) -> None:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=REQUESTS,
        derandomize=WANTED is None,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(asked=any_requests, mood=moods)
    def keeps_its_word(asked: Asked, mood: Mood) -> None:
        endpoint.server.be(mood)
        data = endpoint.send(asked)
        seen["left" if asked.leaves else "sent"] += 1
        if data or asked.is_whole:
            got = answer_of(data, asked)
            assert OWN_FAILURE not in got.body, endpoint.log()[-4000:]
            seen[f"status {got.status}"] += 1
            check(asked, mood, got, endpoint.server)
        check_what_arrived(asked, endpoint.server)

    keeps_its_word()
    print(dict(seen))
    nothing_is_left(endpoint)
    nothing_is_told(endpoint)


def answer_of(data: bytes, asked: Asked) -> Got:
    got = Got(data, asked.method)
    assert ID.fullmatch(got.headers["request-id"])
    assert got.headers["x-request-id"] == got.headers["request-id"]
    return got


def check(asked: Asked, mood: Mood, got: Got, server: FakeMoodyServer) -> None:
    if got.status >= 500 and asked.path != "/health":
        assert mood.fails
        assert server.asked
    if got.status >= 400 and asked.method != "HEAD" and asked.path != "/health":
        check_error(asked, got)
    elif got.is_stream and asked.path not in FORWARDED and wants_stream(asked):
        check_stream(asked, mood, got)
    if asked.valid:
        check_valid(asked, mood, got)


def check_what_arrived(asked: Asked, server: FakeMoodyServer) -> None:
    """The model server gets proper requests, never a key, and nothing of who has none."""
    assert not server.improper
    assert not any(KEY_MARK.encode() in head.partition(b"\r\n")[2] for head, _ in server.requests)
    if not asked.has_key:
        assert set(server.asked) <= FOR_EVERYONE


def wants_stream(asked: Asked) -> bool:
    try:
        body = json.loads(asked.body)
    except (ValueError, RecursionError):
        return False
    return isinstance(body, dict) and body.get("stream") is True


def check_error(asked: Asked, got: Got) -> None:
    """An error in the caller's dialect, with the id of the request.

    What is no HTTP was read up to its fault only, so that either dialect will do.
    """
    assert got.headers["content-type"] == "application/json"
    told = json.loads(got.body)
    dialect = asked.dialect if asked.proper else "Anthropic" if "request_id" in told else "OpenAI"
    assert described.faults_of_error(dialect, got.body) == []
    assert told["error"]["message"]
    if dialect == "Anthropic":
        assert told["request_id"] == got.headers["request-id"]
    if got.status == 429:
        assert int(got.headers.get("retry-after", "1")) >= 1


def check_stream(asked: Asked, mood: Mood, got: Got) -> None:
    """Whole events; the last one ends the answer or is an error of the dialect."""
    *events, rest = got.body.split(b"\n\n")
    assert rest == b""
    last = [one for one in events if not one.startswith(b":")][-1] + b"\n\n"
    if last.startswith(b"event: error\n") or last.startswith(b'data: {"error":'):
        assert described.faults_of_error(asked.dialect, last.partition(b"data: ")[2]) == []
        assert not mood.well
    else:
        assert last.startswith(ENDS)


def check_valid(asked: Asked, mood: Mood, got: Got) -> None:
    """What is as the API says is answered as the API says."""
    if asked.body and not asked.framing:
        body = json.loads(asked.body)
        assert described.faults_of_request(asked.method, asked.path, body) == []
    if mood.well:
        assert got.status == 200
    if mood.well or got.status >= 400:
        faults = described.faults_of_answer(
            asked.method, asked.path, got.status, got.headers, got.body
        )
        assert faults == []


def nothing_is_left(endpoint: LoudEndpoint) -> None:
    """No task, no file, no place at a server is held for requests that are over."""
    endpoint.server.be(WELL)
    until(lambda: endpoint.open_tasks() <= endpoint.tasks, endpoint.open_tasks)
    until(lambda: endpoint.open_files() <= endpoint.files, endpoint.open_files)
    held = re.findall(r"(?m)^zluda_stack_(?:running.*|queue_length) (\S+)$", endpoint.metrics())
    assert held == ["0.0", "0.0", "0.0"]


def nothing_is_told(endpoint: LoudEndpoint) -> None:
    """No prompt, no key, no failure of the endpoint itself in all that it has logged."""
    log = endpoint.log()
    assert "every word is logged" in log
    assert len(re.findall(r" -> \d{3} ", log)) > REQUESTS / 2
    for mark in (PROMPT_MARK, KEY_MARK, "Traceback"):
        _, found, rest = log.partition(mark)
        assert not found, mark + rest[:5000]
