"""A scripted model server for benchmarks: both dialects, as little work as can be, one pace.

`python -m benchmarks.gateways.model_server PORT SECONDS` answers with as many tokens as
`max_tokens` says, the first at once and the others every SECONDS, all streams at the same moment
as llama.cpp's server decodes its slots. IDLE tokens are never answered. GET /aborts tells when
(time.monotonic) clients left that had no answer yet.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from dataclasses import dataclass

IDLE = 4242

_MAX_TOKENS = re.compile(rb'"max(?:_completion)?_tokens":\s*(\d+)')
_STREAM = re.compile(rb'"stream":\s*true')
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_USAGE = {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 0}
_CHAT = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "default"}
_MODEL = {
    "id": "default",
    "object": "model",
    "created": 1,
    "owned_by": "x",
    "meta": {"n_ctx": 1 << 20},
}


def _sse(**event: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (str(event["type"]).encode(), json.dumps(event).encode())


def _chunk(finish: str | None, **delta: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: %s\n\n" % json.dumps({**_CHAT, "choices": [choice]}).encode()


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@dataclass(frozen=True)
class _Frames:
    """The parts of a stream in one dialect, framed for a chunked body."""

    first: bytes
    token: bytes
    last: bytes


_MESSAGE = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "default"}
_FRAMES = {
    b"/v1/messages": _Frames(
        _framed(
            _sse(type="message_start", message={**_MESSAGE, "usage": _USAGE, "stop_reason": None})
            + _sse(type="content_block_start", index=0, content_block={"type": "text", "text": ""})
        ),
        _framed(
            _sse(type="content_block_delta", index=0, delta={"type": "text_delta", "text": " word"})
        ),
        _framed(
            _sse(type="content_block_stop", index=0)
            + _sse(
                type="message_delta",
                delta={"stop_reason": "end_turn", "stop_sequence": None},
                usage={"output_tokens": 1},
            )
            + _sse(type="message_stop")
        )
        + b"0\r\n\r\n",
    ),
    b"/v1/chat/completions": _Frames(
        _framed(_chunk(None, role="assistant", content="")),
        _framed(_chunk(None, content=" word")),
        _framed(_chunk("stop") + b"data: [DONE]\n\n") + b"0\r\n\r\n",
    ),
}
_KNOWN = {
    b"/health": {"status": "ok"},
    b"/props": {"total_slots": 1024},
    b"/v1/models": {"object": "list", "data": [_MODEL]},
    b"/v1/messages/count_tokens": {"input_tokens": 10},
}


class _Connection(asyncio.Protocol):
    """One connection, kept for as many requests as come."""

    aborts: list[float]
    ticking: dict[_Connection, int]  # tokens still to come, by stream

    def __init__(self, aborts: list[float], ticking: dict[_Connection, int]) -> None:
        self.aborts = aborts
        self.ticking = ticking
        self._seen = b""
        self._busy = False
        self.frames = _FRAMES[b"/v1/messages"]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._seen += data
        head, end, body = self._seen.partition(b"\r\n\r\n")
        found = _LENGTH.search(head)
        if end and len(body) >= (int(found[1]) if found else 0):
            self._seen = b""
            self._answer(head.split(b" ")[1].partition(b"?")[0], body)

    def connection_lost(self, _: Exception | None) -> None:
        self.ticking.pop(self, None)
        if self._busy:
            self.aborts.append(time.monotonic())

    def _answer(self, path: bytes, body: bytes) -> None:
        if path == b"/aborts":
            self._json({"aborts": self.aborts})
        elif path not in _FRAMES:
            self._json(_KNOWN.get(path, {}))
        else:
            found = _MAX_TOKENS.search(body)
            tokens = int(found[1]) if found else 1
            self._busy = True
            if _STREAM.search(body):
                self._stream(path, tokens)
            elif tokens != IDLE:
                self._whole(path)

    def _stream(self, path: bytes, tokens: int) -> None:
        self.frames = _FRAMES[path]
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        if tokens != IDLE:
            self.transport.write(self.frames.first + self.frames.token)
            self.ticking[self] = tokens - 1
            if tokens == 1:
                self.tick()

    def tick(self) -> None:
        """Send what is next."""
        left = self.ticking[self]
        if left:
            self.ticking[self] = left - 1
            self.transport.write(self.frames.token)
            return
        del self.ticking[self]
        self._busy = False
        self.transport.write(self.frames.last)

    def _whole(self, path: bytes) -> None:
        if path == b"/v1/messages":
            content = [{"type": "text", "text": " word"}]
            self._json({**_MESSAGE, "content": content, "stop_reason": "end_turn", "usage": _USAGE})
            return
        message = {"role": "assistant", "content": " word"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
        self._json({**_CHAT, "object": "chat.completion", "choices": [choice], "usage": usage})

    def _json(self, told: object) -> None:
        body = json.dumps(told).encode()
        self._busy = False
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
            % (len(body), body)
        )


async def serve(port: int, interval: float) -> None:
    """Serve for ever."""
    aborts: list[float] = []
    ticking: dict[_Connection, int] = {}
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: _Connection(aborts, ticking), "127.0.0.1", port, backlog=2048)
    while True:
        await asyncio.sleep(interval)
        for connection in list(ticking):
            connection.tick()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
