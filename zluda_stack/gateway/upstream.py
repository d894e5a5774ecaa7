"""The way of one request to a model server: through the queue, and past servers that fail."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
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

Ask = Callable[[Server], Request]


@dataclass(frozen=True)
class Upstream:
    """The model servers, as one request sees them; what it costs is noted in `work`."""

    pool: Pool
    wish: Wish
    work: Work = field(default_factory=Work)

    def send(
        self, method: str, target: bytes, headers: Headers, content: bytes
    ) -> AbstractAsyncContextManager[Answer]:
        """The answer to one request, its body not read yet.

        What makes the model compute waits for a place; leaving the context frees it and closes
        the connection, which is how the server learns that nobody waits any more. Before the
        first byte of an answer another server is tried when one fails. Entering raises Fault:
        429 when the queue is full, 503 and 502 when no server is there or one breaks off.
        """
        path = target.partition(b"?")[0].decode("ascii", "replace")
        if not computes(method, path):
            server = self.pool.any_of(self.wish.model, self.wish.conversation)
            return server.send(method, target, headers, content)
        return _Computed(self, lambda server: server.send(method, target, headers, content))


class _Computed:
    """The context of an answer that the model computes.

    A class, and no generator made a context, as is Request; see there.
    """

    def __init__(self, upstream: Upstream, ask: Ask) -> None:
        self._pool = upstream.pool
        self._wish = upstream.wish
        self._work = upstream.work
        self._ask = ask

    async def __aenter__(self) -> Answer:
        self._ticket = self._pool.admission.enter(self._wish)
        self._attempt, self._meter = _Attempt(self._pool, self._ticket, self._ask), Meter()
        try:
            answer = await self._attempt.first_answer()
        except BaseException as error:
            self._end(error)
            raise
        self._work.server = self._ticket.server.name if self._ticket.server else None
        self._work.waited = self._ticket.waited
        return Answer(answer.status_code, answer.headers, self._meter.over(answer.chunks))

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        ticket, meter = self._ticket, self._meter
        if isinstance(error, BrokeOff) and ticket.server is not None:
            self._pool.doubt(ticket.server, State.AWAY)
        self._attempt.close()
        self._pool.admission.leave(ticket)
        if meter.first_at is not None:
            self._work.first_token = meter.first_at - ticket.since
        if self._attempt.succeeded:
            self._work.add(meter.usage())


@dataclass
class _Attempt:
    """The connection over which a request is answered, after those that failed."""

    pool: Pool
    ticket: Ticket
    ask: Ask
    succeeded: bool = False
    _request: Request | None = None

    async def first_answer(self) -> Answer:
        """The answer of the first server that gives one; the last fault when none does."""
        broken = 0
        while True:
            server = await self.ticket.place()
            try:
                self._request = self.ask(server)
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
