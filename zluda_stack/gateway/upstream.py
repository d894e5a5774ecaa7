"""The way of one request to a model server: through the queue, and past servers that fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import httpx

from zluda_stack.gateway.admission import Ticket, Wish
from zluda_stack.gateway.headers import Headers
from zluda_stack.gateway.pool import Pool
from zluda_stack.gateway.routes import computes
from zluda_stack.gateway.server import BROKE_OFF, LOADING, BrokeOff, NotRunning, Server, State

__all__ = ["BROKE_OFF", "LOADING", "Upstream"]


@dataclass(frozen=True)
class Upstream:
    """The model servers, as one request sees them."""

    pool: Pool
    wish: Wish

    @asynccontextmanager
    async def send(
        self, method: str, target: bytes, headers: Headers, content: bytes
    ) -> AsyncIterator[httpx.Response]:
        """The answer to one request, its body not read yet.

        What makes the model compute waits for a place; leaving the context frees it and closes
        the connection, which is how the server learns that nobody waits any more. Before the
        first byte of an answer another server is tried when one fails. Raises Fault: 429 when
        the queue is full, 503 and 502 when no server is there or one breaks off.
        """
        path = target.partition(b"?")[0].decode("ascii", "replace")
        if not computes(method, path):
            server = self.pool.any_of(self.wish.model, self.wish.conversation)
            async with server.send(method, target, headers, content) as response:
                yield response
            return
        with self.pool.admission.enter(self.wish) as ticket:
            try:
                async with AsyncExitStack() as opened:
                    attempt = _Attempt(self.pool, ticket, opened)
                    yield await attempt.first_answer(method, target, headers, content)
            except BrokeOff:
                if ticket.server is not None:
                    self.pool.doubt(ticket.server, State.AWAY)
                raise


@dataclass(frozen=True)
class _Attempt:
    pool: Pool
    ticket: Ticket
    opened: AsyncExitStack

    async def first_answer(
        self, method: str, target: bytes, headers: Headers, content: bytes
    ) -> httpx.Response:
        """The answer of the first server that gives one; the last fault when none does."""
        broken = 0
        while True:
            server = await self.ticket.place()
            try:
                response = await self.opened.enter_async_context(
                    server.send(method, target, headers, content)
                )
            except (NotRunning, BrokeOff) as fault:
                self.pool.doubt(server, State.AWAY)
                broken += isinstance(fault, BrokeOff)
                # A request that has cost two servers their lives must not have the others'.
                if broken > 1 or not self._is_left_after(server):
                    raise
            else:
                if response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    return response
                self.pool.doubt(server, State.LOADING)
                if not self._is_left_after(server):
                    return response
                await self.opened.pop_all().aclose()
            self.pool.admission.again(self.ticket)

    def _is_left_after(self, failed: Server) -> bool:
        """Note that a server has failed this request; True when another can be asked."""
        self.ticket.tried.append(failed)
        return self.pool.could_go_elsewhere(self.ticket)
