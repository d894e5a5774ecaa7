"""Who may begin, who waits and who is sent away: places at the servers, and the queue for them."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass, field
from typing import Protocol

from zluda_stack.gateway.errors import Fault
from zluda_stack.gateway.fair_queue import FairQueue
from zluda_stack.gateway.server import Server

_RETRY_AFTER = (1, 60)  # seconds; the official Python clients ignore longer ones
_WEIGHT = 0.2


@dataclass(frozen=True)
class Wish:
    """A request for a place: whose it is, of which model and conversation."""

    key: str
    model: str | None = None
    conversation: bytes | None = None


@dataclass(eq=False)
class Ticket:
    """One request in the queue or at a server. `tried` are servers that have failed it."""

    wish: Wish
    since: float = field(default_factory=time.monotonic)
    server: Server | None = None
    tried: list[Server] = field(default_factory=list)
    waited: float = 0.0
    looks_again: asyncio.TimerHandle | None = None
    _called: asyncio.Event = field(default_factory=asyncio.Event)
    _refusal: Fault | None = None
    _began: float = 0.0

    async def place(self) -> Server:
        """The server that it may go to, once it has a place there. Raises Fault when sent away."""
        while self.server is None:
            await self._called.wait()
            if self._refusal is not None:
                raise self._refusal
        return self.server

    def grant(self, server: Server) -> None:
        """Take a place at `server`."""
        server.running += 1
        self.server = server
        self._began = time.monotonic()
        self.waited = self._began - self.since
        self._called.set()

    def refuse(self, fault: Fault) -> None:
        """Send it away."""
        self._refusal = fault
        self._called.set()

    def give_back(self) -> float:
        """Free the place; returns for how many seconds it was held."""
        if self.server is not None:
            self.server.running -= 1
        self.server = None
        self._called.clear()
        return time.monotonic() - self._began


class Places(Protocol):
    """Where tickets can go now."""

    def any_free(self) -> bool:
        """False when no ticket whatever could get a place."""

    def at_home(self, ticket: Ticket) -> Server | None:
        """The server that should have `ticket`, when it has a place."""

    def anywhere(self, ticket: Ticket) -> Server | None:
        """Any server that has a place for `ticket`."""


class Admission:
    """Gives places to tickets: at once where one is free, else in turn."""

    def __init__(self, places: Places, *, size: int, patience: float) -> None:
        """`size` is how many may wait, `patience` for how many seconds for one server only."""
        self._places = places
        self._size = size
        self._patience = patience
        self._queue: FairQueue[Ticket] = FairQueue()
        self._mean = 0.0
        self._closed = False
        self.running = 0

    @property
    def waiting(self) -> int:
        """How many requests wait for a place."""
        return len(self._queue)

    def enter(self, wish: Wish) -> Ticket:
        """A ticket for `wish`, which must `leave` in the end.

        Raises Fault 429 when the queue is full. A key of which nothing waits always finds room,
        so that no other key can shut it out.
        """
        ticket = Ticket(wish)
        if not self._goes_at_once(ticket):
            ticket.looks_again = self._queued(ticket)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Free the place of `ticket`, or its place in the queue."""
        if ticket.looks_again is not None:
            ticket.looks_again.cancel()
        if ticket.server is None:
            self._queue.remove(ticket.wish.key, ticket)
        else:
            self._give_back(ticket)
            self.dispatch()

    def close(self) -> None:
        """Send all away who wait, and who come from now on and would have to."""
        self._closed = True
        for ticket in self._queue:
            ticket.refuse(_closing())

    def again(self, ticket: Ticket) -> None:
        """Let `ticket` give its place back and be the next of its key for another."""
        self._give_back(ticket)
        self._queue.prepend(ticket.wish.key, ticket)
        self.dispatch()

    def dispatch(self) -> None:
        """Give out the places that are free. To be called whenever one may have become so."""
        places = self._places
        while self._queue and places.any_free():
            # Those at home first, since one that goes elsewhere computes its whole prompt again.
            found = self._queue.take(places.at_home) or self._queue.take(self._elsewhere)
            if found is None:
                return
            ticket, server = found
            self._grant(ticket, server)

    def _goes_at_once(self, ticket: Ticket) -> bool:
        """True when nobody waits and a place is free: most requests never see the queue."""
        server = None if self._queue else self._places.at_home(ticket)
        if server is None:
            return False
        self._grant(ticket, server)
        return True

    def _queued(self, ticket: Ticket) -> asyncio.TimerHandle | None:
        """Let `ticket` wait, unless it must not; returns what looks again. Raises Fault."""
        self._queue.append(ticket.wish.key, ticket)
        self.dispatch()
        if self._closed and ticket.server is None:
            ticket.refuse(_closing())
        if self._is_too_much(ticket):
            self._queue.remove(ticket.wish.key, ticket)
            raise self._full()
        return self._look_again(ticket)

    def _grant(self, ticket: Ticket, server: Server) -> None:
        ticket.grant(server)
        self.running += 1

    def _elsewhere(self, ticket: Ticket) -> Server | None:
        if time.monotonic() - ticket.since < self._patience:
            return None
        return self._places.anywhere(ticket)

    def _is_too_much(self, ticket: Ticket) -> bool:
        waits_alone = self._queue.waiting(ticket.wish.key) <= 1
        return ticket.server is None and len(self._queue) > self._size and not waits_alone

    def _look_again(self, ticket: Ticket) -> asyncio.TimerHandle | None:
        """When its patience for one server is over, a ticket may go to another."""
        if ticket.server is not None:
            return None
        return asyncio.get_running_loop().call_later(self._patience, self.dispatch)

    def _give_back(self, ticket: Ticket) -> None:
        held = ticket.give_back()
        self.running -= 1
        self._mean += _WEIGHT * (held - self._mean)

    def _full(self) -> Fault:
        least, most = _RETRY_AFTER
        expected = math.ceil(self._mean * len(self._queue) / max(1, self.running))
        return Fault(
            429,
            f"the queue is full: {len(self._queue)} requests wait",
            retry_after=min(max(expected, least), most),
        )


def _closing() -> Fault:
    # Not 503, which clients take for a failure: nothing was lost, and another endpoint may
    # listen here in a moment.
    return Fault(429, "the endpoint is shutting down", retry_after=_RETRY_AFTER[0])
