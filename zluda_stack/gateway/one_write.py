"""Uvicorn's HTTP protocol, with what is written in one turn of the event loop sent as one piece.

It writes the head of an answer, each part of its body and the end of it by themselves; of what a
short request costs here a fifth was those system calls (measured 2026-11-30). And it takes a head
of any length, and waits for one for ever. What is no HTTP it refuses in plain text.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from zluda_stack.gateway import errors
from zluda_stack.gateway.errors import Dialect, Fault
from zluda_stack.gateway.request_id import id_headers, new_id

_HEAD_BYTES = 64 * 1024
_ASKED_FOR = frozenset({"peername", "sslcontext"})  # of a transport

_log = logging.getLogger(__name__)


class OneWriteProtocol(HttpToolsProtocol):
    """What `uvicorn.Config(http=...)` takes."""

    head_seconds = 60.0  # in which a head must come

    _deadline: asyncio.TimerHandle | None = None
    _heads = 0  # that have begun
    _size: int | None = None  # of the head that is read, less the piece in which it began

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(_Gathering(transport))
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._await_no_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol. A head that does not end is refused, whoever sends it."""
        heads = self._heads
        super().data_received(data)
        if self._size is None or self._heads != heads:
            return
        self._size += len(data)
        if self._size > _HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of this request is too long.")

    def send_400_response(self, msg: str) -> None:
        """Refuse what no application sees, in the shape of every other error, and hang up."""
        request_id = new_id()
        client = self.client[0] if self.client else "local"
        _log.info("%s %s -> 400 %s", request_id, client, msg)
        content = errors.body(self._dialect(), Fault(400, msg), request_id)
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(content)),
            (b"connection", b"close"),
            *id_headers(request_id),
        ]
        lines = b"".join(b"%s: %s\r\n" % header for header in headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n%s\r\n%s" % (lines, content))
        self.transport.close()

    def _dialect(self) -> Dialect:
        """That of the request as far as it was read; OpenAI's when nothing was."""
        if not self._heads:
            return Dialect.OPENAI
        return Dialect.of(self.url.partition(b"?")[0].decode("ascii", "replace"), self.headers)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._heads += 1
        self._size = 0
        if self._deadline is None:
            self._await_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head has been read."""
        self._size = None
        self._await_no_head()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """The answer is whole: it goes out before its line is logged, which takes 0.2 ms."""
        if isinstance(self.transport, _Gathering):
            self.transport.flush()
        super().on_response_complete()

    def _await_head(self) -> None:
        self._deadline = self.loop.call_later(self.head_seconds, self.transport.close)

    def _await_no_head(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _Gathering(asyncio.Transport):
    """A transport that writes at the end of the turn. Only what uvicorn uses of it is here."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes | bytearray | memoryview[Any]] = []

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if not self._pieces:
            self._loop.call_soon(self.flush)
        self._pieces.append(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: object = None) -> object:
        # Uvicorn takes both addresses from a socket object, in five system calls: its own, which
        # nobody here reads, and the client's. Without the socket it asks for the peer, as a pair.
        if name not in _ASKED_FOR:
            return default
        told = self._transport.get_extra_info(name, default)
        return told[:2] if name == "peername" and told is not default else told

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def flush(self) -> None:
        """Write what was gathered so far."""
        pieces, self._pieces = self._pieces, []
        if pieces and not self._transport.is_closing():
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
