"""One HTTP request over a connection of its own.

On asyncio and the parser of httptools, and not on a client library: when requests were cancelled at
random moments, some connections of httpx 0.28 stayed open (2026-11-30), and behind each a model
server went on with work that nobody waited for. Connections are not kept: llama.cpp's server has a
thread wait on each that is idle, and one may be closed just as the next request is written to it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

from zluda_stack.gateway.answer import Answer
from zluda_stack.gateway.failures import NotRunning
from zluda_stack.gateway.headers import Headers
from zluda_stack.gateway.incoming import Incoming

_CONNECT_SECONDS = 5.0
# A name is looked up in a thread, which takes longer than all else that a request costs here.
_NAME_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}

Opened = tuple[asyncio.Transport, Incoming]


class _Deadline:
    """Cancels the task that makes it after so many seconds; `passed` tells that from others.

    Not wait_for, which swallows a cancellation at times (CPython 86296, until 3.12), and makes a
    task of its own for what takes a fraction of a millisecond.
    """

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._pass)

    def stop(self) -> None:
        """Cancel nothing from now on."""
        self._timer.cancel()

    def _pass(self) -> None:
        self.passed = True
        if self._task is not None:
            self._task.cancel()


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
        self._found: tuple[str, ...] = ()  # the host's addresses
        self._found_at = 0.0

    async def connect(self, protocol: Callable[[], Incoming]) -> Opened:
        """A new connection. Raises NotRunning when nobody listens there, or not in time."""
        deadline = _Deadline(_CONNECT_SECONDS)
        try:
            return await self._open(protocol)
        except OSError as error:
            raise NotRunning from error
        except asyncio.CancelledError as error:
            if deadline.passed:
                raise NotRunning from error
            raise
        finally:
            deadline.stop()

    async def _open(self, protocol: Callable[[], Incoming]) -> Opened:
        loop = asyncio.get_running_loop()
        if self._path is not None:
            return await loop.create_unix_connection(protocol, self._path)
        named = self._host if self._tls else None
        refused = OSError(f"{self._host} has no address")
        for host in await self._addresses():
            try:
                return await loop.create_connection(
                    protocol, host, self._port, ssl=self._tls, server_hostname=named
                )
            except OSError as error:
                refused = error
        self._found = ()
        raise refused

    async def _addresses(self) -> tuple[str, ...]:
        """Those of the host, which may be a name; those of a moment ago are good enough."""
        now = time.monotonic()
        if not self._found or now - self._found_at > _NAME_SECONDS:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self._found, self._found_at = tuple(str(one[4][0]) for one in found), now
        return self._found


class Request:
    """One request. As a context it gives the answer, its body not read yet.

    Leaving the context closes the connection at once. `target` goes out byte for byte. Raises
    NotRunning, and BrokeOff also while the body is read. A class, and no generator that is
    made a context: those cost 20 us each on the way of every request (2026-12-01).
    """

    def __init__(
        self, address: Address, method: str, target: bytes, headers: Headers, content: bytes
    ) -> None:
        self._address = address
        self._method = method
        self._head = _head(address, method, target, headers, content)
        self._content = content
        self._transport: asyncio.Transport | None = None

    async def __aenter__(self) -> Answer:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def open(self) -> Answer:
        """Send it and return the answer. Nothing is left open when it raises."""
        self._transport, incoming = await self._address.connect(partial(Incoming, self._method))
        try:
            self._transport.writelines([self._head, self._content])
            return await incoming.answer()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._transport is not None:
            self._transport.abort()


def _head(address: Address, method: str, target: bytes, headers: Headers, content: bytes) -> bytes:
    own = [
        (b"host", address.authority),
        (b"connection", b"close"),
        (b"content-length", b"%d" % len(content)),
    ]
    lines = [b"%s: %s\r\n" % pair for pair in (*own, *headers)]
    return b"%s %s HTTP/1.1\r\n%s\r\n" % (method.encode(), target, b"".join(lines))
