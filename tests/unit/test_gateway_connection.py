"""One request over one connection, whatever the other end does, and however it is left."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from zluda_stack.gateway import connection
from zluda_stack.gateway.connection import Address, Request
from zluda_stack.gateway.failures import BrokeOff, NotRunning

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


class FakeServer:
    """Counts the connections that are open at its end."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.open = 0
        self.heads: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            await self.handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def serving(folder: Path, handler: Handler) -> AsyncIterator[tuple[FakeServer, Address]]:
    server = FakeServer(handler)
    path = folder / "server.sock"
    async with await asyncio.start_unix_server(server.serve, path):
        yield server, Address(f"unix:{path}")


@asynccontextmanager
async def serving_tcp(_: Path, handler: Handler) -> AsyncIterator[tuple[FakeServer, Address]]:
    server = FakeServer(handler)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield server, Address(f"http://127.0.0.1:{port}")


def says(*pieces: bytes) -> Handler:
    """Writes `pieces` apart from each other and closes."""

    async def handler(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)

    return handler


def asked(folder: Path, handler: Handler, content: bytes = b"") -> tuple[int, list[bytes], bytes]:
    """The status, the pieces of the body, and the head that the server got."""

    async def ask() -> tuple[int, list[bytes], bytes]:
        async with (
            serving(folder, handler) as (server, address),
            Request(address, "POST", b"/a%2F/../b?c", [(b"x-one", b"1")], content) as answer,
        ):
            return answer.status_code, [chunk async for chunk in answer.chunks], server.heads[0]

    return asyncio.run(ask())


def test_the_request_arrives_as_it_is(tmp_path: Path) -> None:
    body: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body.append(await reader.readexactly(3))
        await says(b"HTTP/1.1 204 No Content\r\n\r\n")(reader, writer)

    status, pieces, head = asked(tmp_path, handler, b"abc")
    assert (status, pieces, body) == (204, [], [b"abc"])
    assert head.startswith(b"POST /a%2F/../b?c HTTP/1.1\r\n")
    assert b"x-one: 1\r\n" in head.lower()
    assert b"content-length: 3\r\n" in head.lower()


def test_a_stream_comes_piece_by_piece_and_what_came_together_stays_together(
    tmp_path: Path,
) -> None:
    pieces = (b"3\r\none\r\n3\r\ntwo\r\n", b"5\r\nth", b"ree\r\n0\r\n\r\n")
    _, told, _ = asked(tmp_path, says(CHUNKED, *pieces))
    assert told == [b"onetwo", b"th", b"ree"]


@pytest.mark.parametrize(
    "answer",
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more",),
        (b"HTTP/1.0 200 OK\r\n\r\nhe", b"llo"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
    ],
)
def test_every_framing_of_a_body_is_understood(tmp_path: Path, answer: tuple[bytes, ...]) -> None:
    status, told, _ = asked(tmp_path, says(*answer))
    assert (status, b"".join(told)) == (200, b"hello")


@pytest.mark.parametrize(
    "answer",
    [
        (),
        (b"HTTP/1.1 200",),
        (b"no http at all\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",),
        (CHUNKED, b"4\r\nhalf"),
        (CHUNKED, b"4\r\nhalf\r\nnonsense\r\n"),
        (CHUNKED, b"4\r\nhalf\r\n"),
    ],
)
def test_what_breaks_off_says_so_after_what_came(tmp_path: Path, answer: tuple[bytes, ...]) -> None:
    came: list[bytes] = []

    async def ask() -> None:
        async with (
            serving(tmp_path, says(*answer)) as (_, address),
            Request(address, "POST", b"/", [], b"{}") as told,
        ):
            async for chunk in told.chunks:
                came.append(chunk)

    with pytest.raises(BrokeOff):
        asyncio.run(ask())
    assert b"".join(came) == (b"half" if any(b"half" in piece for piece in answer) else b"")


@pytest.mark.parametrize(
    "address", ["unix:/nowhere/at.all", "http://127.0.0.1:1", "http://[::1]:1"]
)
def test_where_nobody_listens_the_request_was_not_sent(address: str) -> None:
    async def ask() -> None:
        async with Request(Address(address), "GET", b"/", [], b""):
            pass

    with pytest.raises(NotRunning):
        asyncio.run(ask())


def test_a_server_that_takes_no_connection_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_CONNECT_SECONDS", 0.2)

    async def ask(port: int) -> None:
        async with Request(Address(f"http://127.0.0.1:{port}"), "GET", b"/", [], b""):
            pass

    with socket.socket() as full, ExitStack() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        for _ in range(4):  # what is more than its queue holds gets no answer
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        with pytest.raises(NotRunning):
            asyncio.run(ask(port))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_what_nobody_takes_is_not_read_ahead_without_end(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    piece = b"1000\r\n%s\r\n" % (b"x" * 4096)
    sent: list[int] = []

    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        while len(sent) < 10_000:
            writer.write(piece)
            sent.append(len(piece))
            await writer.drain()

    async def ask() -> None:
        async with (
            serving(tmp_path, endless) as (_, address),
            Request(address, "POST", b"/", [], b"{}") as answer,
        ):
            await anext(answer.chunks)
            await asyncio.sleep(0.5)  # many times what all of it takes to come

    running = loop()
    running.run_until_complete(ask())
    running.close()
    assert sum(sent) < 8 * 1024 * 1024


@pytest.mark.parametrize("text", ["ftp://host", "http://", "http://host:port", "host:80", ""])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"port|address"):
        Address(text)


@pytest.mark.parametrize("serving", [serving, serving_tcp])
def test_however_a_request_is_cancelled_its_connection_is_closed(
    tmp_path: Path, serving: Callable[[Path, Handler], Any]
) -> None:
    """At any moment: while it connects, is sent, waits for the head, or reads the body."""

    async def slowly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(rng.random() * 0.01)
        writer.write(CHUNKED)
        while True:
            writer.write(b"3\r\none\r\n")
            await writer.drain()
            await asyncio.sleep(0.002)

    async def one(address: Address) -> None:
        async with Request(address, "POST", b"/", [], b"{}") as answer:
            async for _ in answer.chunks:
                pass

    async def cancelled(address: Address) -> None:
        task = asyncio.ensure_future(one(address))
        for _ in range(rng.randrange(12)):  # the first moments come step by step
            await asyncio.sleep(0)
        if rng.random() < 0.5:
            await asyncio.sleep(rng.random() * 0.03)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def many() -> None:
        async with serving(tmp_path, slowly) as (server, address):
            for _ in range(10):
                await asyncio.gather(*(cancelled(address) for _ in range(60)))
            for _ in range(500):
                if server.open == 0:
                    break
                await asyncio.sleep(0.01)
            assert server.open == 0
            assert len(server.heads) > 100

    rng = random.Random(7)  # noqa: S311
    asyncio.run(many())
