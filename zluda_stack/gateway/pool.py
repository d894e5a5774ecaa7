"""The model servers behind the endpoint: which are well, and which one a request goes to."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from contextlib import suppress

from zluda_stack.gateway.admission import Admission, Ticket
from zluda_stack.gateway.affinity import Homes
from zluda_stack.gateway.errors import Fault
from zluda_stack.gateway.server import Server, State

# A server that computes is asked no oftener than this.
_LOOK_SECONDS = 10.0
_LOOK_AGAIN_SECONDS = 2.0
# A turn that goes elsewhere costs its whole prompt again: seconds on a good card, minutes on a
# slow one. Waiting a little for the server that has it in its cache is cheaper.
_PATIENCE_SECONDS = 5.0

_log = logging.getLogger(__name__)


class Pool:
    """Servers of one model or of several by name.

    Requests go to the server that has their conversation, else to the one with least to do. A
    server that fails is passed over until it is well again; when all of a model are, one of them
    is asked nevertheless: what it answers is the truth, and an old finding may not be.
    """

    def __init__(
        self, servers: Sequence[Server], *, queue: int, patience: float = _PATIENCE_SECONDS
    ) -> None:
        """`queue` is how many requests may wait, `patience` for how long for their own server."""
        self.servers = tuple(servers)
        self.admission = Admission(self, size=queue, patience=patience)
        self._homes: Homes[Server] = Homes()
        self._turns = itertools.count(1)
        self._last_turn = dict.fromkeys(self.servers, 0)
        self._looking: dict[Server, asyncio.Task[Fault | None]] = {}
        self._doubted = {server: asyncio.Event() for server in self.servers}

    @property
    def chooses(self) -> bool:
        """True when it matters what a request asks for, since there is more than one server."""
        return len(self.servers) > 1

    def of_model(self, model: str | None) -> list[Server]:
        """The servers of the name `model`; those of the first name when there are none."""
        named = [server for server in self.servers if server.model == model]
        first = self.servers[0].model
        return named or [server for server in self.servers if server.model == first]

    def one_of_each_model(self) -> list[Server]:
        """A server for each name, to be asked beside the queue."""
        names = dict.fromkeys(server.model for server in self.servers)
        return [self.any_of(name) for name in names]

    def any_of(self, model: str | None, conversation: bytes | None = None) -> Server:
        """A server of `model` for a request that needs no place."""
        servers = self.of_model(model)
        home = self._homes.of(conversation)
        if home in servers and home.is_open:
            return home
        return self._least_loaded([one for one in servers if one.is_open] or servers)

    async def watch(self) -> None:
        """Look after all servers, for ever."""
        await asyncio.gather(*(self._watch(server) for server in self.servers))

    def any_free(self) -> bool:
        """See Places."""
        return any(server.has_place for server in self.servers)

    def at_home(self, ticket: Ticket) -> Server | None:
        """See Places: the server of the conversation; for a new one, that with least to do."""
        wish = ticket.wish
        candidates = self._candidates(ticket)
        home = self._homes.of(wish.conversation)
        if home in candidates:
            return home if home.has_place else None
        chosen = self._least_loaded_free(candidates)
        if chosen is not None:
            self._homes.settle(wish.conversation, chosen)
        return chosen

    def anywhere(self, ticket: Ticket) -> Server | None:
        """See Places."""
        return self._least_loaded_free(self._candidates(ticket))

    async def look(self, server: Server) -> Fault | None:
        """How `server` is now; who asks while another does gets the same answer."""
        looking = self._looking.get(server)
        if looking is None:
            looking = asyncio.ensure_future(self._look(server))
            self._looking[server] = looking
            looking.add_done_callback(lambda _: self._looking.pop(server))
        return await asyncio.shield(looking)

    async def ready(self) -> Fault | None:
        """None when every model has a server that is ready, else what is missing."""
        faults = dict(
            zip(self.servers, await asyncio.gather(*map(self.look, self.servers)), strict=True)
        )
        models = dict.fromkeys(server.model for server in self.servers)
        for model in models:
            found = [faults[server] for server in self.servers if server.model == model]
            if None not in found:
                return found[0]
        return None

    def doubt(self, server: Server, state: State) -> None:
        """Note what a request has met, pass `server` over, and look whether it is well again."""
        if server.state is not state:
            _log.warning("model server %s: %s", server.name, state.value)
        server.state = state
        self._doubted[server].set()

    def could_go_elsewhere(self, ticket: Ticket) -> bool:
        """True when a server is left that has not failed this request."""
        return any(one not in ticket.tried for one in self.of_model(ticket.wish.model))

    def close(self) -> None:
        """Look no more."""
        for looking in list(self._looking.values()):
            looking.cancel()

    async def _look(self, server: Server) -> Fault | None:
        before = server.state
        fault = await server.look()
        if server.state is not before:
            _log.info("model server %s: %s", server.name, server.state.value)
        self.admission.dispatch()
        return fault

    async def _watch(self, server: Server) -> None:
        doubted = self._doubted[server]
        while True:
            await self.look(server)
            ready = server.state is State.READY
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(
                    doubted.wait(), _LOOK_SECONDS if ready else _LOOK_AGAIN_SECONDS
                )
            doubted.clear()

    def _candidates(self, ticket: Ticket) -> list[Server]:
        left = [one for one in self.of_model(ticket.wish.model) if one not in ticket.tried]
        return [one for one in left if one.is_open] or left

    def _least_loaded_free(self, servers: Sequence[Server]) -> Server | None:
        free = [one for one in servers if one.has_place]
        if not free:
            return None
        chosen = self._least_loaded(free)
        self._last_turn[chosen] = next(self._turns)
        return chosen

    def _least_loaded(self, servers: Sequence[Server]) -> Server:
        """The one with least to do; of equals, the one whose last turn is longest ago."""
        return min(servers, key=lambda one: (one.load, self._last_turn[one]))
