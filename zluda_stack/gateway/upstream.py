"""The way of one request to a model server: through the queue, and past servers that fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

from zluda_stack.gateway.admission import Ticket, Wish
from zluda_stack.gateway.answer import Answer
from zluda_stack.gateway.connection import Request
from zluda_stack.gateway.failures import BrokeOff, NotRunning
from zluda_stack.gateway.headers import Headers
from zluda_stack.gateway.pool import Pool
from zluda_stack.gateway.routes import computes
from zluda_stack.gateway.server import Server, State
from zluda_stack.gateway.usage import Meter, Work


@dataclass(frozen=True)
class Upstream:
    """The model servers, as one request sees them; what it costs is noted in `work`."""

    pool: Pool
    wish: Wish
    work: Work = field(default_factory=Work)

    @asynccontextmanager
    async def send(
        self, method: str, target: bytes, headers: Headers, content: bytes
    ) -> AsyncIterator[Answer]:
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
            attempt, meter = _Attempt(self.pool, ticket), Meter()
            try:
                answer = await attempt.first_answer(method, target, headers, content)
                self._begun(ticket)
                yield Answer(answer.status_code, answer.headers, meter.over(answer.chunks))
            except BrokeOff:
                if ticket.server is not None:
                    self.pool.doubt(ticket.server, State.AWAY)
                raise
            finally:
                attempt.close()
                self._ended(ticket, attempt, meter)

    def _begun(self, ticket: Ticket) -> None:
        self.work.server = ticket.server.name if ticket.server else None
        self.work.waited = ticket.waited

    def _ended(self, ticket: Ticket, attempt: _Attempt, meter: Meter) -> None:
        if meter.first_at is not None:
            self.work.first_token = meter.first_at - ticket.since
        if attempt.succeeded:
            self.work.add(meter.usage())


@dataclass
class _Attempt:
    """The connection over which a request is answered, after those that failed."""

    pool: Pool
    ticket: Ticket
    succeeded: bool = False
    _request: Request | None = None

    async def first_answer(
        self, method: str, target: bytes, headers: Headers, content: bytes
    ) -> Answer:
        """The answer of the first server that gives one; the last fault when none does."""
        broken = 0
        while True:
            server = await self.ticket.place()
            try:
                self._request = server.send(method, target, headers, content)
                response = await self._request.open()
            except (NotRunning, BrokeOff) as fault:
                self.pool.doubt(server, State.AWAY)
                broken += isinstance(fault, BrokeOff)
                # A request that has cost two servers their lives must not have the others'.
                if broken > 1 or not self._is_left_after(server):
                    raise
            else:
                if response.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
                    self.succeeded = response.is_success
                    return response
                self.pool.doubt(server, State.LOADING)
                if not self._is_left_after(server):
                    return response
                self.close()
            self.pool.admission.again(self.ticket)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._request is not None:
            self._request.close()

    def _is_left_after(self, failed: Server) -> bool:
        """Note that a server has failed this request; True when another can be asked."""
        self.ticket.tried.append(failed)
        return self.pool.could_go_elsewhere(self.ticket)
