"""One HTTP answer as it comes over a connection: head, body and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus

import httptools

from zluda_stack.gateway.answer import Answer
from zluda_stack.gateway.failures import BrokeOff
from zluda_stack.gateway.headers import Headers

# What is read ahead of a client that takes its time.
_AHEAD_BYTES = 256 * 1024
_HEAD_BYTES = 64 * 1024
_NO_STATUS = 600  # and above
_FRAMED = frozenset({b"content-length", b"transfer-encoding"})


class Incoming(asyncio.Protocol):
    """Reads the answer to the one request of a connection. Cannot be used for a second one."""

    def __init__(self, method: str) -> None:
        self._without_body = method == "HEAD"
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._headers: Headers = []
        self._head_size = 0
        self._status: int | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self._complete = False
        self._lost = False

    async def answer(self) -> Answer:
        """The answer, as soon as its head is here. Raises BrokeOff."""
        while self._status is None:
            if self._lost:
                raise BrokeOff
            await self._more()
        return Answer(self._status, self._headers, self)

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The body: what came at once as one piece, however it was cut into chunks."""
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._complete:
                raise StopAsyncIteration
            if self._lost:
                raise BrokeOff
            await self._more()
        return self._take()

    def _take(self) -> bytes:
        pieces, self._pieces, self._size = self._pieces, [], 0
        if self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _more(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # What the transport tells.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol. The transports of uvloop are no instances of asyncio.Transport."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._complete or self._lost:
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._lost = not self._complete
        if self._size > _AHEAD_BYTES and self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        # Without a length the body ends with the connection, if that ends in order.
        if self._status is not None and exc is None and not self._is_framed():
            self._complete = True
        self._lost = not self._complete
        self._wake()

    def _is_framed(self) -> bool:
        return any(name in _FRAMED for name, _ in self._headers)

    # What the parser finds in it.

    def on_message_begin(self) -> None:
        """A head begins: the only one, or that after one of status 1xx."""
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header of the head, or of a trailer, which says nothing about the body any more."""
        self._head_size += len(name) + len(value)
        if self._head_size > _HEAD_BYTES:
            raise BrokeOff
        if self._status is None:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        status = self._parser.get_status_code()
        if status >= _NO_STATUS:
            raise BrokeOff
        if status >= HTTPStatus.OK:
            self._status = status
            self._complete = self._without_body

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._pieces.append(data)
        self._size += len(data)

    def on_message_complete(self) -> None:
        """The end of the answer, or of a head of status 1xx."""
        self._complete = self._status is not None
