"""What a gateway in Python costs at least: two that pass bytes on and do nothing else.

`... floor {bare|asgi} PORT UPSTREAM`: bare is two protocols of asyncio on uvloop with a parser for
the request; asgi an application on uvicorn that asks the model server in the endpoint's way. No
key is looked at, nothing is read of a body, counted, queued or logged.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httptools
import uvicorn
import uvloop

from zluda_stack.gateway.connection import Address, Request
from zluda_stack.gateway.one_write import OneWriteProtocol

_END = b"message_stop"
_HEADERS = [(b"content-type", b"text/event-stream")]

Message = MutableMapping[str, Any]


class _Back(asyncio.Protocol):
    """The way back."""

    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)


class _Bare(asyncio.Protocol):
    """One connection of a client, and one to the server for its only request."""

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._parser = httptools.HttpRequestParser(self)
        self._pieces: list[bytes] = []
        self._server: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._client = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        self._passing = asyncio.ensure_future(self._pass())

    def connection_lost(self, _: Exception | None) -> None:
        if self._server is not None:
            self._server.abort()

    async def _pass(self) -> None:
        body = b"".join(self._pieces)
        head = b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
        loop = asyncio.get_running_loop()
        self._server, _ = await loop.create_connection(
            lambda: _Back(self._client), "127.0.0.1", self._upstream
        )
        self._server.writelines([head, body])


async def _serve_bare(port: int, upstream: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Bare(upstream), "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


def _asgi(upstream: int) -> Callable[..., Awaitable[None]]:
    address = Address(f"http://127.0.0.1:{upstream}")

    async def app(
        _: object,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        pieces, more = [], True
        while more:
            message = await receive()
            pieces.append(message["body"])
            more = message["more_body"]
        async with Request(address, "POST", b"/v1/messages", [], b"".join(pieces)) as answer:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            async for chunk in answer.chunks:
                more = _END not in chunk
                await send({"type": "http.response.body", "body": chunk, "more_body": more})

    return app


def main(kind: str, port: int, upstream: int) -> None:
    """Serve for ever."""
    if kind == "bare":
        uvloop.install()
        asyncio.run(_serve_bare(port, upstream))
    else:
        uvicorn.run(
            _asgi(upstream),
            port=port,
            http=OneWriteProtocol,
            lifespan="off",
            log_config=None,
            access_log=False,
        )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
