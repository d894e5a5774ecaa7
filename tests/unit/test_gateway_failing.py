"""However the model server fails, the client is told in its dialect, and the endpoint goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import described
from tests.fake_moods import FAILING_MOODS, FakeMoodyServer, Mood
from tests.in_process import ask
from tests.running_gateway import CHAT, MESSAGES

ASK: dict[str, Any] = {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
REQUESTS: dict[str, dict[str, Any]] = {
    MESSAGES: ASK,
    CHAT: ASK,
    "/v1/completions": {"prompt": "hi", "suffix": "ho"},
    "/v1/responses": {"input": "hi", "max_output_tokens": 1},
}
# What passes as bytes, unread: a whole answer in the right place, and events in the right form.
UNREAD = {
    *("a list", "a number", "an empty object", "wrong types", "null everywhere", "no JSON"),
    *("no UTF-8", "a page", "nothing", "no content"),
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeMoodyServer]:
    running = FakeMoodyServer(tmp_path / "model.sock")
    yield running
    running.close()


@pytest.mark.parametrize("mood", FAILING_MOODS, ids=lambda mood: mood.name)
@pytest.mark.parametrize("path", REQUESTS)
def test_a_stream_ends_with_an_error_or_is_refused(
    tmp_path: Path, server: FakeMoodyServer, path: str, mood: Mood
) -> None:
    server.be(mood)
    answer = ask(tmp_path, path, json.dumps({**REQUESTS[path], "stream": True}).encode())
    assert answer.status in (200, 500, 502)
    assert b"the endpoint failed" not in answer.body
    if answer.status == 200:
        last = answer.body.split(b"\n\n")[-2]
        assert is_error(path, last) or last.startswith((b"data: [DONE]", b"event: response."))
    else:
        assert is_error(path, answer.body)


@pytest.mark.parametrize("mood", FAILING_MOODS, ids=lambda mood: mood.name)
@pytest.mark.parametrize("path", REQUESTS)
def test_a_whole_answer_of_another_shape_is_refused(
    tmp_path: Path, server: FakeMoodyServer, path: str, mood: Mood
) -> None:
    server.be(mood)
    answer = ask(tmp_path, path, json.dumps(REQUESTS[path]).encode())
    assert b"the endpoint failed" not in answer.body
    if mood.name.removeprefix("telling ") not in UNREAD:
        assert answer.status in (500, 502)
    if answer.status >= 400:
        assert is_error(path, answer.body)


def is_error(path: str, told: bytes) -> bool:
    """True for an error of the dialect that is spoken at `path`, whole or as an event."""
    dialect = "Anthropic" if path == MESSAGES else "OpenAI"
    data = told.partition(b"data: ")[2] or told
    return data.startswith(b"{") and described.faults_of_error(dialect, data) == []
