"""One HTTP request over a connection of its own.

On h11 and asyncio, and not on a client library: when requests were cancelled at random moments,
some connections of httpx 0.28 stayed open (2026-11-30), and behind each a model server went on
with work that nobody waited for. Connections are not kept: a kept one may be closed by the server
just as the next request is written to it, and a fresh one over a UNIX socket costs about 0.1 ms.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from urllib.parse import urlsplit

import h11

from zluda_stack.gateway.answer import Answer
from zluda_stack.gateway.failures import BrokeOff, NotRunning
from zluda_stack.gateway.headers import Headers

_CONNECT_SECONDS = 5.0
_READ_BYTES = 65_536
_PORTS = {"http": 80, "https": 443}

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Address:
    """Where a server listens: `http://host:port`, `https://host:port` or `unix:path`.

    Raises ValueError for anything else.
    """

    def __init__(self, text: str) -> None:
        self._path = text.removeprefix("unix:") if text.startswith("unix:") else None
        parts = urlsplit("http://model-server" if self._path else text)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError(f"{text} is no address of a server")
        self.authority = parts.netloc.rpartition("@")[2].encode()
        self._host = parts.hostname
        self._port = parts.port or _PORTS[parts.scheme]
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None

    async def connect(self) -> Streams:
        """A new connection. Raises NotRunning when nobody listens there, or not in time."""
        opening = asyncio.ensure_future(self._open())
        try:
            await asyncio.wait({opening}, timeout=_CONNECT_SECONDS)
        except asyncio.CancelledError:
            _abandon(opening)
            raise
        if not opening.done():
            _abandon(opening)
            raise NotRunning
        try:
            return opening.result()
        except OSError as error:
            raise NotRunning from error

    async def _open(self) -> Streams:
        if self._path is not None:
            return await asyncio.open_unix_connection(self._path)
        return await asyncio.open_connection(self._host, self._port, ssl=self._tls)


@asynccontextmanager
async def request(
    address: Address, method: str, target: bytes, headers: Headers, content: bytes
) -> AsyncIterator[Answer]:
    """The answer to one request. Leaving the context closes the connection at once.

    `target` goes out byte for byte. Raises NotRunning, and BrokeOff also while the body is read.
    """
    reader, writer = await address.connect()
    try:
        protocol = h11.Connection(h11.CLIENT)
        for event in _events(address, method, target, headers, content):
            writer.write(protocol.send(event) or b"")
        with _told_as_broken():
            await writer.drain()
        head = await _next(protocol, reader)
        while isinstance(head, h11.InformationalResponse):
            head = await _next(protocol, reader)
        if not isinstance(head, h11.Response):
            raise BrokeOff
        yield Answer(head.status_code, list(head.headers), _body(protocol, reader))
    finally:
        writer.transport.abort()


def _events(
    address: Address, method: str, target: bytes, headers: Headers, content: bytes
) -> list[h11.Event]:
    own = [
        (b"host", address.authority),
        (b"connection", b"close"),
        (b"content-length", b"%d" % len(content)),
    ]
    begin = h11.Request(method=method, target=target, headers=[*own, *headers])
    return [begin, h11.Data(data=content), h11.EndOfMessage()]


async def _next(protocol: h11.Connection, reader: asyncio.StreamReader) -> h11.Event:
    """The next event of the answer."""
    with _told_as_broken():
        while (event := protocol.next_event()) is h11.NEED_DATA:
            protocol.receive_data(await reader.read(_READ_BYTES))
    if not isinstance(event, h11.Event):
        raise BrokeOff
    return event


def _at_hand(protocol: h11.Connection) -> object:
    """The next event, if it has come already. What is wrong is told to who waits for it."""
    with suppress(h11.RemoteProtocolError):
        return protocol.next_event()
    return None


async def _body(protocol: h11.Connection, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The body: what came at once as one piece, however it was cut into chunks."""
    while True:
        event: object = await _next(protocol, reader)
        pieces = []
        while isinstance(event, h11.Data):
            pieces.append(bytes(event.data))
            event = _at_hand(protocol)
        if pieces:
            yield b"".join(pieces)
        if isinstance(event, h11.EndOfMessage):
            return


@contextmanager
def _told_as_broken() -> Iterator[None]:
    try:
        yield
    except (OSError, h11.RemoteProtocolError) as error:
        raise BrokeOff from error


def _abandon(opening: asyncio.Future[Streams]) -> None:
    """Let a connection that nobody waits for any more be closed, should it come to be."""

    def close(opened: asyncio.Future[Streams]) -> None:
        if not opened.cancelled() and opened.exception() is None:
            opened.result()[1].transport.abort()

    opening.cancel()
    opening.add_done_callback(close)
