"""A scripted model server: it plays what a real one cannot be made to do at the right moment.

Slow first bytes, silence, a stream that breaks off, a death in the middle of an event.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

Script = Callable[[asyncio.StreamWriter], Coroutine[Any, Any, None]]
Play = Script | Mapping[str, Script]


# What the endpoint itself may ask at any time, whatever its clients do.
_OWN = (b"GET /health ", b"POST /apply-template ")


class FakeModelServer:
    """A model server on a UNIX socket that plays a script for every request.

    `requests` are those of clients.

    `play` is one script for all, or one for each path (without its query); "" is then for the
    paths that have none, and without it they are answered with 404.
    """

    def __init__(self, path: Path, play: Play) -> None:
        self.requests: list[tuple[bytes, bytes]] = []
        self.client_left = threading.Event()
        self._path = path
        self._play = play if isinstance(play, Mapping) else {"": play}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_unix_server(self._serve, path), self._loop
        ).result()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [
            line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        ]
        body = await reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else b""
        probe = head.startswith(_OWN)
        if not probe:
            self.requests.append((head, body))
        script = asyncio.ensure_future(self._script_for(head)(writer))
        gone = asyncio.ensure_future(reader.read())
        await asyncio.wait({script, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not script.done():
            script.cancel()
            if not probe:
                self.client_left.set()
        gone.cancel()
        writer.close()

    def _script_for(self, head: bytes) -> Script:
        path = head.split(b" ")[1].split(b"?")[0].decode()
        return self._play.get(path) or self._play.get("") or _NOT_FOUND

    def bodies(self, path: str) -> list[bytes]:
        """The bodies of the requests for `path` so far."""
        wanted = b" " + path.encode()
        return [body for head, body in self.requests if wanted in head.split(b"\r\n")[0]]

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._path.unlink(missing_ok=True)


def whole(
    body: bytes, content_type: bytes = b"application/json", status: bytes = b"200 OK"
) -> Script:
    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nKeep-Alive: timeout=5\r\n"
            b"X-Kept: yes\r\n\r\n%s" % (status, content_type, len(body), body)
        )
        await writer.drain()

    return script


async def silence(_writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


async def sudden_death(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def stream(*chunks: bytes, then: Script | None = None) -> Script:
    """A chunked event stream; without `then` it is ended properly."""

    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for chunk in chunks:
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await writer.drain()
        if then is None:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        else:
            await then(writer)

    return script


def error(status: bytes, **told: object) -> Script:
    """An error as llama.cpp words it."""
    return whole(json.dumps({"error": told}).encode(), status=status)


_NOT_FOUND = error(b"404 Not Found", code=404, message="File Not Found", type="not_found_error")

LOADING = error(
    b"503 Service Unavailable", code=503, message="Loading model", type="unavailable_error"
)


def sse(**event: object) -> bytes:
    """An event of Anthropic's stream, named after its type as llama.cpp writes it."""
    return b"event: %s\ndata: %s\n\n" % (str(event["type"]).encode(), json.dumps(event).encode())


def message_events(
    *texts: str, stop_reason: str = "end_turn", stop: str | None = None
) -> list[bytes]:
    """The chunks of a whole stream of llama.cpp's /v1/messages that says `texts`."""
    message: dict[str, object] = {
        "id": "chatcmpl-1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "default",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"cache_read_input_tokens": 5, "input_tokens": 7, "output_tokens": 0},
    }
    block = {"type": "text", "text": ""}
    return [
        sse(type="message_start", message=message)
        + sse(type="content_block_start", index=0, content_block=block),
        *(
            sse(type="content_block_delta", index=0, delta={"type": "text_delta", "text": text})
            for text in texts
        ),
        sse(type="content_block_stop", index=0)
        + sse(
            type="message_delta",
            delta={"stop_reason": stop_reason, "stop_sequence": stop},
            usage={"output_tokens": len(texts)},
        )
        + sse(type="message_stop"),
    ]
