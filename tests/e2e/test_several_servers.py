"""Two real llama.cpp servers behind one endpoint: who gets what, and what a death costs."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.e2e.conftest import eventually, free_port

pytestmark = pytest.mark.embedded

KEY = "zs-two-servers"
ENDLESS = {"max_tokens": 1500, "ignore_eos": True}


class ModelServer:
    """The embedded engine's inference process, alone."""

    def __init__(self, folder: Path, model: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.model = model
        self.start()

    @property
    def address(self) -> str:
        return f"unix:{self.folder / 'inference.sock'}"

    def start(self) -> None:
        command = [sys.executable, "-m", "zluda_stack.engines.embedded.inference"]
        options = ["--model", str(self.model), "--context", "2048", "--threads", "1"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *options, "--alias", "default"],
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Endpoint:
    """The endpoint before two model servers, and what its log and its metrics say."""

    def __init__(self, folder: Path, servers: list[ModelServer]) -> None:
        self.log = folder / "endpoint.log"
        self.port = free_port()
        key = folder / "key"
        key.write_text(KEY)
        upstreams = [word for one in servers for word in ("--upstream", one.address)]
        options = ["--port", str(self.port), "--key-file", str(key), "--drain", "20", *upstreams]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "zluda_stack.gateway", *options],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def post(self, body: dict[str, Any], session: str = "") -> requests.Response:
        """The answer to a message, in a conversation that its own words or `session` name."""
        return requests.post(
            f"http://127.0.0.1:{self.port}/v1/messages",
            json={"model": "default", "max_tokens": 4, **body},
            headers={"x-api-key": KEY, "x-claude-code-session-id": session},
            stream=bool(body.get("stream")),
            timeout=300,
        )

    def server_of(self, answer: requests.Response) -> str:
        """The address of the model server that has given `answer`."""
        identity = re.escape(answer.headers["request-id"])
        found: list[str] = []

        def is_logged() -> bool:
            found[:] = re.findall(rf"{identity} .* server=(\S+)", self.log.read_text())
            return bool(found)

        assert eventually(is_logged), self.log.read_text()[-2000:]
        return found[0]

    def gauge(self, name: str) -> dict[str, float]:
        """The value of a metric by model server."""
        answer = requests.get(
            f"http://127.0.0.1:{self.port}/metrics", headers={"x-api-key": KEY}, timeout=10
        )
        lines = re.findall(rf'^{name}{{server="([^"]+)"}} (\S+)$', answer.text, re.MULTILINE)
        return {server: float(value) for server, value in lines}

    def are_up(self, *expected: str) -> bool:
        """True when it finds these model servers well, and no other."""
        try:
            found = self.gauge("zluda_stack_server_up")
        except requests.ConnectionError:
            return False
        return {server for server, value in found.items() if value} == set(expected)

    def busy(self) -> set[str]:
        return {server for server, n in self.gauge("zluda_stack_running").items() if n}

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


class Two:
    """Both servers and the endpoint."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.servers = [ModelServer(folder / name, model) for name in ("one", "two")]
        self.endpoint = Endpoint(folder, self.servers)
        self.addresses = [one.address for one in self.servers]
        assert eventually(lambda: self.endpoint.are_up(*self.addresses), 120)

    def at(self, address: str) -> ModelServer:
        return next(one for one in self.servers if one.address == address)

    def other_than(self, address: str) -> str:
        return next(one for one in self.addresses if one != address)

    def stop(self) -> None:
        self.endpoint.stop()
        for one in self.servers:
            one.kill()


@pytest.fixture(scope="module")
def two(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    made = Two(tmp_path_factory.mktemp("two"), gguf)
    yield made
    made.stop()


@pytest.fixture
def mortal(gguf: Path, tmp_path: Path) -> Iterator[Two]:
    """To be stopped by the test."""
    made = Two(tmp_path, gguf)
    yield made
    made.stop()


def said(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def events(answer: requests.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines(chunk_size=None):
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


def begun(two: Two, topic: str) -> tuple[requests.Response, Iterator[dict[str, Any]]]:
    """A long answer of a new conversation, whose first words are here."""
    answer = two.endpoint.post(
        {"messages": [said("user", f"Talk of {topic}.")], "stream": True, **ENDLESS}
    )
    told = events(answer)
    for event in told:
        if event["type"] == "content_block_delta":
            return answer, told
    raise AssertionError("the stream had no words")


@pytest.mark.parametrize("session", ["", "a session of Claude Code"])
def test_a_conversation_returns_to_its_server_and_its_cache(two: Two, session: str) -> None:
    def first_turn(topic: str) -> dict[str, Any]:
        rules = " ".join(f"Rule {number} of {topic}: be brief." for number in range(60))
        return {"system": rules, "messages": [said("user", "Say yes.")]}

    conversations = {topic: first_turn(f"{topic} {session}") for topic in ("tea", "rain")}
    homes = {}
    for topic, body in conversations.items():
        answer = two.endpoint.post(body, session and f"{session} on {topic}")
        homes[topic] = two.endpoint.server_of(answer)
        words = "".join(block["text"] for block in answer.json()["content"]) or "Yes."
        body["messages"] += [said("assistant", words), said("user", "Again.")]
    assert set(homes.values()) == set(two.addresses)

    for topic, body in reversed(conversations.items()):
        answer = two.endpoint.post(body, session and f"{session} on {topic}")
        assert two.endpoint.server_of(answer) == homes[topic]
        usage = answer.json()["usage"]
        cached = usage["cache_read_input_tokens"]
        assert cached >= 0.95 * (cached + usage["input_tokens"])


def test_new_conversations_go_where_least_is_running(two: Two) -> None:
    answer, _ = begun(two, "the sea")
    (busy,) = two.endpoint.busy()
    for topic in ("bread", "snow", "iron"):
        other = two.endpoint.post({"messages": [said("user", f"Talk of {topic}.")]})
        assert two.endpoint.server_of(other) == two.other_than(busy)
    answer.close()
    assert eventually(lambda: not two.endpoint.busy())


def test_a_server_that_dies_is_passed_over_until_it_is_back(two: Two) -> None:
    _, told = begun(two, "mountains")
    (dying,) = two.endpoint.busy()
    two.at(dying).kill()
    last = list(told)[-1]
    assert last["type"] == "error"
    assert "stopped" in last["error"]["message"]

    # The conversation itself, and others, go on at the server that is left.
    for topic in ("mountains", "bread", "snow"):
        other = two.endpoint.post({"messages": [said("user", f"Talk of {topic}.")]})
        assert other.status_code == 200
        assert two.endpoint.server_of(other) == two.other_than(dying)
    assert two.endpoint.are_up(two.other_than(dying))

    two.at(dying).start()
    assert eventually(lambda: two.endpoint.are_up(*two.addresses), 120)
    used = {
        two.endpoint.server_of(two.endpoint.post({"messages": [said("user", f"Say {topic}.")]}))
        for topic in ("one", "two")
    }
    assert used == set(two.addresses)


def test_what_runs_when_the_endpoint_is_stopped_ends_whole_on_both(mortal: Two) -> None:
    asked = {"stream": True, "max_tokens": 120, "ignore_eos": True}
    answers = [
        mortal.endpoint.post({"messages": [said("user", f"Talk of {topic}.")], **asked})
        for topic in ("rivers", "roads")
    ]
    assert eventually(lambda: mortal.endpoint.busy() == set(mortal.addresses))
    mortal.endpoint.process.send_signal(signal.SIGTERM)
    for answer in answers:
        assert [event["type"] for event in events(answer)][-1] == "message_stop"
    assert mortal.endpoint.process.wait(30) == -signal.SIGTERM
    assert all(one.process.poll() is None for one in mortal.servers)
