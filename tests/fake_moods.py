"""A fake model server in one mood after another: well, slow, refusing, breaking off, nonsense."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import h11

from tests.fake_answers import ANSWERS, STREAMS, chat_chunk
from tests.fake_upstream import (
    LOADING,
    FakeModelServer,
    Script,
    error,
    stream,
    sudden_death,
    whole,
)


@dataclass(frozen=True)
class Question:
    """A request as the model server got it, and how many it got before in the same mood."""

    path: str
    streams: bool
    before: int = 0


@dataclass(frozen=True)
class Mood:
    """What a model server does with every request. In one that `fails`, a client of the endpoint
    may get a 5xx; in one that is `well`, it gets what the API promises."""

    name: str
    play: Callable[[Question], Script]
    fails: bool = False
    well: bool = False


def _well(question: Question) -> Script:
    if question.streams:
        return stream(*STREAMS[question.path])
    return whole(json.dumps(ANSWERS[question.path]).encode())


def _late(question: Question) -> Script:
    async def script(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.15)
        await _well(question)(writer)

    return script


def _in_pieces(question: Question) -> Script:
    """Chunks that end where no event does."""
    if not question.streams:
        return _well(question)
    data = b": comment\n\n" + b"".join(STREAMS[question.path])
    return stream(*(data[at : at + 61] for at in range(0, len(data), 61)))


def _with_huge_event(question: Question) -> Script:
    if not question.streams or question.path != "/v1/chat/completions":
        return _well(question)
    first, *others = STREAMS[question.path]
    return stream(first, chat_chunk({"content": "x" * 300_000}), *others)


def _silent_for_long(question: Question) -> Script:
    if not question.streams:
        return _well(question)
    first, *others = STREAMS[question.path]

    async def rest(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.1)
        for chunk in (b":\n\n", *others):
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    return stream(first, then=rest)


def _loading(question: Question) -> Script:
    return LOADING if question.before < 4 else _well(question)


def _after_informational(question: Question) -> Script:
    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        await _well(question)(writer)

    return script


def _half(question: Question) -> Script:
    if question.streams:
        data = b"".join(STREAMS[question.path])
        return stream(data[: len(data) // 2], then=sudden_death)

    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{")
        await writer.drain()

    return script


def _raw(data: bytes) -> Callable[[Question], Script]:
    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return lambda _question: script


def _events_of(*chunks: bytes) -> Callable[[Question], Script]:
    return lambda _question: stream(*chunks)


def _body(body: bytes, kind: bytes = b"application/json") -> Callable[[Question], Script]:
    return lambda _question: whole(body, kind)


def _refusing(status: bytes, **told: object) -> Callable[[Question], Script]:
    return lambda _question: error(status, code=int(status[:3]), **told)


def _other_kind(question: Question) -> Script:
    """A stream for who asked for none, and the other way round."""
    if question.path not in STREAMS:
        return stream(b"data: {}\n\n")
    return _well(Question(question.path, streams=not question.streams))


def _to_whoever_listens(script: Script) -> Script:
    """`script`, which ends when the endpoint has left."""

    async def played(writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await script(writer)

    return played


_OVERFLOW = {
    "message": "the request exceeds the available context size",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 9999,
    "n_ctx": 4096,
}
_ERROR_EVENT = b'event: error\ndata: {"code":500,"message":"compute error","type":"server_error"}'
_NONSENSE: dict[str, Callable[[Question], Script]] = {
    "a list": _body(b"[]"),
    "a number": _body(b"1"),
    "an empty object": _body(b"{}"),
    "wrong types": _body(b'{"choices":[1],"data":[1],"content":1,"usage":1,"output":[1]}'),
    "null everywhere": _body(b'{"choices":null,"data":null,"usage":null,"output":null}'),
    "no JSON": _body(b"Well."),
    "no UTF-8": _body(b'{"id":"\xff"}'),
    "a page": _body(b"<html>", b"text/html"),
    "nothing": _body(b""),
    "another kind": _other_kind,
    "no events": _events_of(),
    "events of no JSON": _events_of(b"event: message_delta\ndata: Well.\n\n", b"data: {\n\n"),
    "events of a list": _events_of(
        b"event: message_start\ndata: [1]\n\n", b"data: [1]\n\n", b"data: [DONE]\n\n"
    ),
    "events of wrong types": _events_of(
        b'event: message_delta\ndata: {"type":"message_delta","delta":1,"usage":[]}\n\n',
        b'event: response.completed\ndata: {"type":"response.completed"}\n\n',
        b'data: {"choices":[{"delta":1}],"content":1}\n\n',
    ),
    "events of no UTF-8": _events_of(
        b'data: {"choices":[],"content":"\xff"}\n\n', b"data: \xff\n\n"
    ),
    "only a comment": _events_of(b": well\n\n"),
    "an endless event": _events_of(*[b"x" * 10_000] * 20),
    "an error event": _events_of(_ERROR_EVENT + b"\n\n"),
    "an error event of nonsense": _events_of(b"event: error\ndata: Well.\n\n"),
    "no HTTP": _raw(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "an endless head": _raw(b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 200_000 + b"\r\n\r\n{}"),
    "a wrong chunk": _raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n"),
    "a redirect": _raw(b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"),
    "no content": _raw(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "another protocol": _raw(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"),
    "a status of its own": _raw(b"HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n"),
}

_OF_ITS_OWN = {
    "/health": b'{"status":"ok"}',
    "/apply-template": b'{"prompt":"zluda-stack-system-mark zluda_stack_tool_mark"}',
}

WELL = Mood("well", _well, well=True)
GOOD_MOODS = (
    *[WELL] * 6,
    Mood("in pieces", _in_pieces, well=True),
    Mood("with a huge event", _with_huge_event, well=True),
    Mood("after 103", _after_informational, well=True),
)
SLOW_MOODS = (
    Mood("late", _late, well=True),
    Mood("silent for long", _silent_for_long, well=True),
    Mood("loading", _loading),
)
REFUSING_MOODS = (
    Mood("refusing", _refusing(b"400 Bad Request", message="no")),
    Mood("overflowing", _refusing(b"400 Bad Request", **_OVERFLOW)),
    Mood("lacking", _refusing(b"404 Not Found", message="File Not Found")),
    Mood("hurried", _refusing(b"429 Too Many Requests", message="later")),
    Mood("of a picky template", _refusing(b"500 Internal Server Error", message="Jinja: no")),
    Mood("of no such function", _refusing(b"501 Not Implemented", message="not supported")),
)
FAILING_MOODS = (
    Mood("computing wrong", _refusing(b"500 Error", message="compute error"), fails=True),
    Mood("breaking off", _half, fails=True),
    Mood("dead", lambda _question: sudden_death, fails=True),
    *(Mood(f"telling {name}", play, fails=True) for name, play in _NONSENSE.items()),
)


class FakeMoodyServer(FakeModelServer):
    """A model server that plays its `mood`. `asked` are the paths that it was asked for in it
    by clients that wait, `improper` what came that was not one proper HTTP request."""

    def __init__(self, path: Path) -> None:
        self.mood = WELL
        self.asked: list[str] = []
        self.improper: list[str] = []
        super().__init__(path, {})

    def be(self, mood: Mood) -> None:
        """Change to `mood`."""
        self.mood = mood
        self.asked.clear()
        self.requests.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):  # whoever asked has left
            await super()._serve(reader, writer)

    def _script_for(self, head: bytes) -> Script:
        self._look_at(head)
        path = head.split(b" ")[1].partition(b"?")[0].decode()
        if path in _OF_ITS_OWN:  # the endpoint's questions of its own, at any time
            return whole(_OF_ITS_OWN[path])
        if b"x-left: yes" not in head:  # who left is heard at any time after that
            self.asked.append(path)
        return _to_whoever_listens(self._played(path))

    def _played(self, path: str) -> Script:
        if path not in ANSWERS:
            return error(b"404 Not Found", code=404, message="File Not Found")
        streams = path in STREAMS and b'"stream":true' in self.requests[-1][1].replace(b" ", b"")
        return self.mood.play(Question(path, streams, len(self.asked) - 1))

    def _look_at(self, head: bytes) -> None:
        strict = h11.Connection(h11.SERVER)
        strict.receive_data(head)
        try:
            strict.next_event()
        except h11.RemoteProtocolError as problem:
            self.improper.append(f"{problem}: {head!r}")
