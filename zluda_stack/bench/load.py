"""The client: streamed requests, several at once, with the moments at which their pieces came.

Threads on the standard library's HTTP, and not an event loop: between two pieces a client only
waits in recv, what came is only kept while it waits, and read when all answers are there. The own
asyncio client of the endpoint needs httptools, which who measures a remote server may not have,
and a loop in Python would be late for one stream while it reads another. A connection is opened
before the clock starts. No proxy of the environment counts: it would be measured too.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from zluda_stack.bench.prompts import Prompt, asked
from zluda_stack.bench.saved import Answer

TIMEOUT_SECONDS = 600.0
_READ_BYTES = 65536
_FINISHED = frozenset({"length", "stop"})

JsonObject = dict[str, Any]
Piece = tuple[float, bytes]


@dataclass(frozen=True)
class Server:
    """Where to ask. `connect` makes a connection that is not open yet.

    `path` is what stands before /v1, `extra` what the server knows beside OpenAI's fields.
    """

    connect: Callable[[], http.client.HTTPConnection]
    model: str
    path: str = ""
    key: str | None = field(default=None, repr=False)
    extra: JsonObject = field(default_factory=dict)

    def headers(self) -> dict[str, str]:
        """Those of every request."""
        key = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        return {"Content-Type": "application/json", "Connection": "close", **key}


@dataclass(frozen=True)
class _Raw:
    """An answer as it came: pieces with seconds since the request was sent, or what went wrong."""

    pieces: list[Piece]
    fault: str = ""


def wave(
    server: Server, prompt: Prompt, clients: int, *, cached: bool
) -> tuple[tuple[Answer, ...], float]:
    """The answers to `clients` at once, and the seconds until the last had its own."""
    bodies = [_body(server, prompt, cached=cached) for _ in range(clients)]
    connections = [_opened(server) for _ in bodies]
    with ThreadPoolExecutor(max_workers=clients) as pool:
        began = time.perf_counter()
        raw = list(pool.map(partial(_ask, server), connections, bodies))
        seconds = time.perf_counter() - began
    answers = (Answer(fault=one.fault) if one.fault else read(one.pieces) for one in raw)
    return tuple(answers), seconds


def look(server: Server, path: str) -> JsonObject:
    """The JSON object at `path`. Raises OSError, HTTPException, ValueError for anything else."""
    connection = server.connect()
    try:
        connection.request("GET", server.path + path, headers=server.headers())
        response = connection.getresponse()
        content = response.read()
        if response.status != http.HTTPStatus.OK:
            raise ValueError(f"HTTP {response.status}")
        found = json.loads(content)
        if not isinstance(found, dict):
            raise ValueError("it is no JSON object")
        return found
    finally:
        connection.close()


def _body(server: Server, prompt: Prompt, *, cached: bool) -> bytes:
    asked_for: JsonObject = {
        "model": server.model,
        "messages": [{"role": "user", "content": asked(prompt, cached=cached)}],
        "max_tokens": prompt.answer,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return json.dumps(asked_for | server.extra).encode()


def _opened(server: Server) -> http.client.HTTPConnection | str:
    """A connection that is open, or why there is none."""
    connection = server.connect()
    try:
        connection.connect()
    except OSError as error:
        return f"no connection: {error.strerror or type(error).__name__}"
    return connection


def _ask(server: Server, connection: http.client.HTTPConnection | str, body: bytes) -> _Raw:
    if isinstance(connection, str):
        return _Raw([], connection)
    try:
        began = time.perf_counter()
        connection.request("POST", f"{server.path}/v1/chat/completions", body, server.headers())
        response = connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            return _Raw([], f"HTTP {response.status}: {_told(response.read())}")
        return _Raw(list(_pieces(response, began)))
    except (OSError, http.client.HTTPException) as error:
        return _Raw([], f"the answer broke off: {type(error).__name__}")
    finally:
        connection.close()


def _pieces(response: http.client.HTTPResponse, began: float) -> Iterator[Piece]:
    while data := response.read1(_READ_BYTES):
        yield time.perf_counter() - began, data


def _told(content: bytes) -> str:
    """What an error says, without what it may hold of the request."""
    try:
        error = json.loads(content)["error"]
        return str(error["message"] if isinstance(error, dict) else error)[:200]
    except (ValueError, KeyError, TypeError):
        return "no reason given"


def read(pieces: list[Piece]) -> Answer:
    """The answer in the pieces of a stream of server-sent events; with a fault if it is not whole.

    An event came when its last byte did.
    """
    moments: list[float] = []
    usage: JsonObject = {}
    finish = ""
    whole = False
    try:
        for moment, data in _events(pieces):
            if data == "[DONE]":
                whole = True
                continue
            event = json.loads(data)
            if "error" in event:
                return Answer(fault=f"an error in the stream: {str(event['error'])[:200]}")
            usage = event.get("usage") or usage
            for choice in event.get("choices") or ():
                finish = choice.get("finish_reason") or finish
                if _text(choice.get("delta") or {}):
                    moments.append(moment)
    except (ValueError, TypeError, AttributeError):
        return Answer(fault="the stream has another shape")
    if not whole or finish not in _FINISHED:
        return Answer(fault=f"the answer is not whole: it ended with {finish or 'nothing'}")
    return _answer(moments, usage)


def _events(pieces: list[Piece]) -> Iterator[tuple[float, str]]:
    """The data of each event, and when it came."""
    rest = b""
    for moment, piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield moment, line[5:].strip().decode()


def _text(delta: JsonObject) -> str:
    """The text in a piece, also that of a model that thinks first."""
    return str(delta.get("content") or delta.get("reasoning_content") or "")


def _answer(moments: list[float], usage: JsonObject) -> Answer:
    details = usage.get("prompt_tokens_details") or {}
    prompt, tokens = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not isinstance(prompt, int) or not isinstance(tokens, int):
        return Answer(fault="the server does not say how many tokens there were")
    if not moments:
        return Answer(fault="the answer is empty")
    return Answer(
        first=round(moments[0], 6),
        last=round(moments[-1], 6),
        gaps=tuple(round(b - a, 6) for a, b in pairwise(moments)),
        prompt_tokens=prompt,
        cached_tokens=int(details.get("cached_tokens") or 0),
        tokens=tokens,
    )
