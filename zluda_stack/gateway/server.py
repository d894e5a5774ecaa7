"""One model server: how it is reached, and what is known of it now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum

import httpx
import msgspec
from msgspec import Struct

from zluda_stack.gateway.errors import Fault

_CONNECT_SECONDS = 5.0
_HEALTH_SECONDS = 5.0

NOT_RUNNING = "the model server is not running; `zluda-stack status` says why"
SILENT = "the model server does not answer"
LOADING = "the model is still being loaded; try again in a moment"
BROKE_OFF = (
    "the model server stopped while it worked on this request; `zluda-stack status` says why"
)


class NotRunning(Fault):
    """Nobody listens there: the request has not reached a server."""

    def __init__(self) -> None:
        super().__init__(503, NOT_RUNNING)


class BrokeOff(Fault):
    """The server ended the connection before its answer was whole."""

    def __init__(self) -> None:
        super().__init__(502, BROKE_OFF)


class State(Enum):
    """What a server was found to be at the last look."""

    UNKNOWN = "unknown"
    READY = "ready"
    LOADING = "loading"
    AWAY = "away"


class _Props(Struct):
    total_slots: int | None = None


class Server:
    """One model server, reached over TCP (`http://host:port`) or a UNIX socket (`unix:path`).

    `slots` is how many requests it computes at once, None while that is not known; `running` how
    many of them are taken. Connections are not kept: a kept one may be closed by the server just
    as the next request is written to it, and a fresh one over a UNIX socket costs about 0.1 ms.
    """

    def __init__(self, address: str, *, model: str | None = None, slots: int | None = None) -> None:
        socket_path = address.removeprefix("unix:") if address.startswith("unix:") else None
        self.name = address
        self.model = model
        self.slots = slots
        self._asks_for_slots = slots is None
        self.running = 0
        self.state = State.UNKNOWN
        self._base = httpx.URL("http://model-server" if socket_path else address)
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(
                uds=socket_path,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
                trust_env=False,
            ),
            timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
            trust_env=False,
        )

    @property
    def is_open(self) -> bool:
        """True unless it is known to answer nothing now."""
        return self.state in {State.READY, State.UNKNOWN}

    @property
    def has_place(self) -> bool:
        """True when it can begin another request at once, as far as is known."""
        return self.slots is None or self.running < self.slots

    @property
    def load(self) -> float:
        """How much of it is taken; servers of one model can be compared by it."""
        return self.running / (self.slots or 1)

    @asynccontextmanager
    async def send(
        self,
        method: str,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        content: bytes,
    ) -> AsyncIterator[httpx.Response]:
        """The server's answer to one request, its body not read yet.

        Leaving the context closes the connection, which is how the server learns that nobody
        waits any more. Raises NotRunning, and BrokeOff whenever the server breaks off.
        """
        # As an extension, so that the target goes out byte for byte: a URL would normalise it.
        request = httpx.Request(
            method, self._base, headers=headers, content=content, extensions={"target": target}
        )
        try:
            response = await self._client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NotRunning from error
        except httpx.TransportError as error:
            raise BrokeOff from error
        try:
            yield response
        except httpx.TransportError as error:
            raise BrokeOff from error
        finally:
            await response.aclose()

    async def look(self) -> Fault | None:
        """Ask the server how it is, and note it; None when it is ready, else what is missing."""
        try:
            fault = await asyncio.wait_for(self._health(), _HEALTH_SECONDS)
        except asyncio.TimeoutError:
            fault = Fault(503, SILENT)
        except Fault as error:
            fault = Fault(503, error.message)
        if fault is None:
            self.state = State.READY
        else:
            self.state = State.LOADING if fault.message == LOADING else State.AWAY
        return fault

    async def _health(self) -> Fault | None:
        async with self.send("GET", b"/health", [], b"") as response:
            if not response.is_success:
                return Fault(503, LOADING)
        if self._asks_for_slots and self.state is not State.READY:
            self.slots = await self._total_slots()
        return None

    async def _total_slots(self) -> int | None:
        """How many slots llama.cpp's server has; None from a server that does not say."""
        async with self.send("GET", b"/props", [], b"") as response:
            try:
                props = msgspec.json.decode(await response.aread(), type=_Props)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return None
        return props.total_slots or None

    async def aclose(self) -> None:
        """Close what is open."""
        await self._client.aclose()
