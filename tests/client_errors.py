"""Everything that can go wrong behind the endpoint, played, and what a client makes of it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import openai

from tests.claude_code import ClaudeCode
from tests.fake_upstream import (
    FakeModelServer,
    Play,
    Script,
    error,
    message_events,
    silence,
    stream,
    sudden_death,
)
from tests.running_gateway import CHAT, KEY, MESSAGES, RunningGateway
from zluda_stack import keyring
from zluda_stack.keyring import Key
from zluda_stack.render import claude_code
from zluda_stack.render.clients import Connection

_UNDER_WAY = 8.0  # seconds in which every client has begun, on a busy machine
LIMITED = "zs-a-key-with-limits"
_QUESTION: Any = {"model": "default", "max_tokens": 16}
_QUESTION["messages"] = [{"role": "user", "content": "Say hello."}]
_LAST = (
    b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"default","choices":'
    b'[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"completion_tokens":2,'
    b'"prompt_tokens":9,"total_tokens":11}}\n\n'
)
_CHUNK = (
    b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"default","choices":'
    b'[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}\n\n'
)


_ANSWERS = {
    MESSAGES: stream(*message_events("Hello.")),
    CHAT: stream(_CHUNK, _LAST, b"data: [DONE]\n\n"),
}


def begun(then: Script | None) -> Play:
    """A stream that has begun in either dialect."""
    return {
        MESSAGES: stream(*message_events("Hel")[:2], then=then),
        CHAT: stream(_CHUNK, then=then),
    }


def loads_for(seconds: float) -> Play:
    """A server that loads its model so long, and answers then."""
    ready = time.monotonic() + seconds
    loading = error(b"503 Service Unavailable", code=503, message="Loading model")

    def of(script: Script) -> Script:
        async def played(writer: asyncio.StreamWriter) -> None:
            await (script if time.monotonic() > ready else loading)(writer)

        return played

    return {path: of(script) for path, script in _ANSWERS.items()}


Prepare = Callable[[RunningGateway], AbstractContextManager[None]]


@contextmanager
def _nothing(_: RunningGateway) -> Iterator[None]:
    yield


@contextmanager
def occupied(gateway: RunningGateway) -> Iterator[None]:
    """Two requests that wait for ever, one for the model and one for the other."""
    connections = [_posted(gateway, KEY) for _ in range(2)]
    yield
    for connection in connections:
        connection.close()


@contextmanager
def used(gateway: RunningGateway) -> Iterator[None]:
    """One answer that the key with limits has had."""
    with contextlib.closing(_posted(gateway, LIMITED)) as connection:
        connection.getresponse().read()
    yield


@contextmanager
def stopped(gateway: RunningGateway) -> Iterator[None]:
    """SIGTERM while the client's answer is under way."""
    timer = threading.Timer(_UNDER_WAY, gateway.process.terminate)
    timer.start()
    yield
    timer.cancel()


@contextmanager
def gone(gateway: RunningGateway) -> Iterator[None]:
    """Nobody listens any more."""
    gateway.stop()
    yield


def _posted(gateway: RunningGateway, key: str) -> http.client.HTTPConnection:
    connection = gateway.connect()
    body = b'{"stream":true,"messages":[{"role":"user","content":"?"}]}'
    connection.request("POST", CHAT, body, {"x-api-key": key})
    time.sleep(0.3)
    return connection


@dataclass(frozen=True)
class Situation:
    """What the model server plays (nothing: it is not there), and how the endpoint is set up."""

    title: str
    play: Callable[[], Play] | None
    whole: Script | None = None  # for requests that want no stream, where they are another matter
    key: str = KEY
    options: tuple[str, ...] = ("--slots", "64")
    limits: dict[str, int] = field(default_factory=dict)
    prepare: Prepare = _nothing
    ends_well: bool = False


def _error(status: bytes, **told: object) -> Callable[[], Play]:
    return lambda: error(status, **told)


_TOO_LONG = {"type": "exceed_context_size_error", "n_prompt_tokens": 5000, "n_ctx": 4096}
_SERVER_ERROR = b"500 Internal Server Error"

SITUATIONS = {
    "wrong-key": Situation("the key is wrong", lambda: silence, key="zs-wrong"),
    "too-long": Situation(
        "the prompt is longer than the context",
        _error(b"400 Bad Request", code=400, message="too long", **_TOO_LONG),
    ),
    "refused": Situation(
        "the model's template refuses the request",
        _error(_SERVER_ERROR, code=500, message="Jinja Exception: roles must alternate"),
    ),
    "nothing-there": Situation(
        "nothing is at this path", _error(b"404 Not Found", code=404, message="File Not Found")
    ),
    "wrong-method": Situation(
        "this path does not take the method",
        _error(b"405 Method Not Allowed", code=405, message="Method Not Allowed"),
    ),
    "compressed": Situation(
        "the body is compressed",
        _error(b"415 Unsupported Media Type", code=415, message="Unsupported Media Type"),
    ),
    "too-large": Situation(
        "the body is above 32 MB", _error(b"413 Payload Too Large", code=413, message="too large")
    ),
    "queue-full": Situation(
        "the queue is full",
        lambda: silence,
        options=("--slots", "1", "--queue", "1"),
        prepare=occupied,
    ),
    "minute-used": Situation(
        "the key's requests of this minute are used up",
        lambda: _ANSWERS,
        key=LIMITED,
        limits={"per_minute": 1},
        prepare=used,
        ends_well=True,
    ),
    "day-used": Situation(
        "the key's tokens of this day are used up",
        lambda: _ANSWERS,
        key=LIMITED,
        limits={"tokens_per_day": 1},
        prepare=used,
    ),
    "loading": Situation("the model is loaded within 40 s", lambda: loads_for(40), ends_well=True),
    "away": Situation("the model server is not there", None),
    "dies-at-once": Situation("the model server dies before its first byte", lambda: sudden_death),
    "fails": Situation(
        "the model server fails", _error(_SERVER_ERROR, code=500, message="Compute error.")
    ),
    "breaks-off": Situation(
        "the model server dies in mid-answer", lambda: begun(sudden_death), whole=sudden_death
    ),
    "stopped": Situation(
        "the endpoint is stopped in mid-answer", lambda: begun(silence), prepare=stopped
    ),
    "gone": Situation("the endpoint is not there", None, prepare=gone),
    "ends-early": Situation(
        "the answer ends without its end", lambda: begun(None), whole=sudden_death
    ),
}


@dataclass(frozen=True)
class Seen:
    """How a client ended: how often it asked, after how many seconds, and with what."""

    tries: int
    seconds: float
    told: str


class _Server(FakeModelServer):
    """One that may play another script for what is no stream."""

    def __init__(self, path: Path, situation: Situation) -> None:
        self._whole = situation.whole
        super().__init__(path, situation.play() if situation.play else {})

    def _script_for(self, head: bytes) -> Script:
        posted = head.startswith(b"POST ")
        if self._whole and posted and not json.loads(self.requests[-1][1]).get("stream"):
            return self._whole
        return super()._script_for(head)


@contextmanager
def played(situation: Situation, folder: Path) -> Iterator[RunningGateway]:
    """The endpoint in `situation`."""
    digest = hashlib.sha256(LIMITED.encode()).digest()
    limited = Key(digest=digest, name="limited", **situation.limits)  # type: ignore[arg-type]
    keys = folder / "keys"
    keys.write_text(keyring.line(limited) + "\n")
    gateway = RunningGateway(folder, 5, *situation.options, "--key-hashes", str(keys))
    server = _Server(gateway.socket, situation) if situation.play else None
    try:
        with situation.prepare(gateway):
            yield gateway
    finally:
        gateway.stop()
        if server is not None:
            server.close()


def asked_by(gateway: RunningGateway, ask: Callable[[], str], limit: float = 120) -> Seen:
    """What is seen of `ask`, which returns what a client tells in the end.

    A client that is still waiting after `limit` seconds is left to itself.
    """
    before, began = _posts(gateway), time.monotonic()
    told = [f"still waiting after {limit:.0f} s"]
    thread = threading.Thread(target=lambda: told.append(ask()), daemon=True)
    thread.start()
    thread.join(limit)
    seconds = time.monotonic() - began
    return Seen(_posts(gateway) - before, seconds, told[-1])


def _posts(gateway: RunningGateway) -> int:
    time.sleep(0.2)  # a line is written when its request has ended
    lines = gateway.log.read_text().splitlines()
    return sum(f" POST {path} " in line for line in lines for path in (MESSAGES, CHAT))


def of_anthropic(gateway: RunningGateway, key: str, *, streaming: bool) -> str:
    """What Anthropic's package raises or returns, as its users have it."""
    url = f"http://127.0.0.1:{gateway.port}"
    with anthropic.Anthropic(base_url=url, api_key=key) as client:
        try:
            if streaming:
                with client.messages.stream(**_QUESTION) as events:
                    return events.get_final_text()
            return str(client.messages.create(**_QUESTION))
        except anthropic.APIError as raised:
            return _named(raised)


def of_openai(gateway: RunningGateway, key: str, *, streaming: bool) -> str:
    """What OpenAI's package raises or returns, as its users have it."""
    url = f"http://127.0.0.1:{gateway.port}/v1"
    with openai.OpenAI(base_url=url, api_key=key) as client:
        try:
            if streaming:
                chunks = list(client.chat.completions.create(**_QUESTION, stream=True))
                return "".join(one.choices[0].delta.content or "" for one in chunks)
            return str(client.chat.completions.create(**_QUESTION))
        except openai.APIError as raised:
            return _named(raised)


def _named(raised: Exception) -> str:
    return f"{type(raised).__name__}: {raised}"


def of_claude_code(
    gateway: RunningGateway, key: str, program: Path, home: Path, timeout: float
) -> str:
    """What Claude Code tells in the end, with its short prompt."""
    to = Connection(
        stack="default",
        title="a model",
        url=f"http://127.0.0.1:{gateway.port}",
        key=key,
        context=65536,
        tools=None,
    )
    variables = claude_code.environment(to) | claude_code.mode(simple=True)
    client = ClaudeCode(program, home, {name: value for name, value in variables.items() if value})
    told = client.ask("Say hello.", timeout=timeout)
    return ("error: " if told["is_error"] else "answer: ") + str(told["result"])
