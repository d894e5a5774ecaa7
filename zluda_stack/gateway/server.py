"""One model server: how it is reached, and what is known of it now."""

from __future__ import annotations

import asyncio
from enum import Enum

import msgspec
from msgspec import Struct

from zluda_stack.gateway.connection import Address, Request
from zluda_stack.gateway.errors import Fault
from zluda_stack.gateway.failures import LOADING, SILENT
from zluda_stack.gateway.headers import Headers

_HEALTH_SECONDS = 5.0


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
    many of them are taken.
    """

    def __init__(self, address: str, *, model: str | None = None, slots: int | None = None) -> None:
        self.name = address
        self.model = model
        self.slots = slots
        self._asks_for_slots = slots is None
        self.running = 0
        self.state = State.UNKNOWN
        self._address = Address(address)

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

    def send(self, method: str, target: bytes, headers: Headers, content: bytes) -> Request:
        """One request to the server: a context that gives its answer, the body not read yet.

        Leaving the context closes the connection, which is how the server learns that nobody
        waits any more. Raises NotRunning, and BrokeOff whenever the server breaks off.
        """
        return Request(self._address, method, target, headers, content)

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
                props = msgspec.json.decode(await response.read(), type=_Props)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return None
        return props.total_slots or None
