"""Who begins, who waits and who is sent away, and at which server; no server is really there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from zluda_stack.gateway.admission import Ticket, Wish
from zluda_stack.gateway.errors import Fault
from zluda_stack.gateway.pool import Pool
from zluda_stack.gateway.server import Server, State

Test = Callable[[], Coroutine[Any, Any, None]]


def pool_of(*slots: int | None, queue: int = 100, names: str = "", patience: float = 60) -> Pool:
    """A server for each of `slots`, all of one model, or of the models named by `names`."""
    servers = [
        Server(f"unix:server-{at}", model=names[at] if names else None, slots=count)
        for at, count in enumerate(slots)
    ]
    return Pool(servers, queue=queue, patience=patience)


class Held:
    """Tickets in a pool, by the names that the test gives them."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.tickets: dict[str, Ticket] = {}

    def enter(self, name: str, key: str = "k", talk: str | None = None, **wish: Any) -> None:
        mark = talk.encode() if talk else None
        self.tickets[name] = self.pool.admission.enter(Wish(key, conversation=mark, **wish))

    def leave(self, *names: str) -> None:
        for name in names:
            self.pool.admission.leave(self.tickets.pop(name))

    def at(self, name: str) -> int | None:
        """The number of the server where the ticket has its place, None while it waits."""
        server = self.tickets[name].server
        return None if server is None else self.pool.servers.index(server)

    def places(self) -> dict[str, int | None]:
        return {name: self.at(name) for name in self.tickets}


def in_loop(test: Test) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


@in_loop
async def test_as_many_begin_as_there_are_slots_and_the_next_when_one_ends() -> None:
    held = Held(pool_of(2))
    for name in "abcd":
        held.enter(name)
    assert held.places() == {"a": 0, "b": 0, "c": None, "d": None}
    held.leave("b")
    assert held.places() == {"a": 0, "c": 0, "d": None}
    assert held.pool.admission.waiting == 1
    held.leave("d", "a", "c")
    assert (held.pool.admission.waiting, held.pool.admission.running) == (0, 0)
    assert held.pool.servers[0].running == 0


@in_loop
async def test_a_server_that_does_not_tell_its_slots_takes_all() -> None:
    held = Held(pool_of(None))
    for name in "abcd":
        held.enter(name)
    assert set(held.places().values()) == {0}


@in_loop
async def test_waiting_ends_with_a_place_and_can_be_cancelled() -> None:
    held = Held(pool_of(1))
    held.enter("a")
    held.enter("b")
    held.enter("c")
    waiting = asyncio.ensure_future(held.tickets["b"].place())
    await asyncio.sleep(0)
    waiting.cancel()
    held.leave("b")
    other = asyncio.ensure_future(held.tickets["c"].place())
    await asyncio.sleep(0)
    assert not other.done()
    held.leave("a")
    assert await other is held.pool.servers[0]


@in_loop
async def test_a_full_queue_says_when_to_come_again() -> None:
    held = Held(pool_of(1, queue=2))
    for name in "abc":
        held.enter(name)
    with pytest.raises(Fault, match="queue is full") as told:
        held.enter("d")
    assert told.value.status == 429
    assert told.value.retry_after is not None
    assert 1 <= told.value.retry_after <= 60
    held.leave("b")
    held.enter("e")
    assert held.pool.admission.waiting == 2


@in_loop
async def test_no_key_can_shut_another_out_of_a_full_queue() -> None:
    held = Held(pool_of(1, queue=2))
    for name in "abc":
        held.enter(name, key="greedy")
    held.enter("guest", key="guest")
    with pytest.raises(Fault):
        held.enter("more", key="guest")
    held.leave("a")
    held.leave(next(name for name, at in held.places().items() if at == 0))
    assert held.at("guest") == 0


@in_loop
async def test_sixty_four_streams_of_one_key_delay_another_by_one_turn() -> None:
    held = Held(pool_of(4))
    for number in range(64):
        held.enter(f"greedy-{number}", key="greedy")
    for number in range(4):
        held.enter(f"guest-{number}", key="guest")
    began: list[str] = []
    while "guest-3" in held.tickets:
        running = [name for name, at in held.places().items() if at is not None]
        began += [name for name in running if name not in began]
        held.leave(running[0])
    turns = began[4:]  # what was running before the guest came
    assert [name.split("-")[0] for name in turns[:8]] == ["greedy", "guest"] * 4


@in_loop
async def test_new_conversations_are_spread_and_come_back_to_where_they_began() -> None:
    held = Held(pool_of(2, 2, 2))
    for talk in "abc":
        held.enter(talk, talk=talk)
    first = held.places()
    assert set(first.values()) == {0, 1, 2}
    held.leave(*"abc")
    for talk in "cab":
        held.enter(talk, talk=talk)
        assert held.at(talk) == first[talk]
        held.leave(talk)


@in_loop
async def test_the_server_with_least_to_do_in_relation_to_its_slots_is_next() -> None:
    held = Held(pool_of(1, 4))
    for name in "abcde":
        held.enter(name)
    assert [held.at(name) for name in "abcde"] == [0, 1, 1, 1, 1]


@in_loop
async def test_a_turn_waits_for_its_own_server_and_lets_others_pass() -> None:
    held = Held(pool_of(1, 1))
    held.enter("a", talk="a")
    held.enter("b", talk="b")
    held.enter("a again", talk="a")
    held.enter("new", talk="c")
    held.leave("b")  # its server is free, but has no part of a's prompt
    assert held.places() == {"a": 0, "a again": None, "new": 1}
    held.leave("a")
    assert held.at("a again") == 0


@in_loop
async def test_a_turn_that_waited_long_for_its_own_server_goes_to_another() -> None:
    held = Held(pool_of(1, 1, patience=0.05))
    held.enter("a", talk="a")
    held.enter("again", talk="a")
    assert held.at("again") is None
    assert await asyncio.wait_for(held.tickets["again"].place(), 5) is held.pool.servers[1]
    held.leave("a", "again")
    held.enter("third", talk="a")
    assert held.at("third") == 0  # where most of it is kept


@in_loop
async def test_a_server_that_is_away_or_loads_gets_nothing_while_another_is_well() -> None:
    held = Held(pool_of(2, 2))
    held.enter("a", talk="a")
    home = held.at("a")
    assert home is not None
    other = 1 - home
    for state in (State.AWAY, State.LOADING):
        held.pool.servers[home].state = state
        held.enter("again", talk="a")
        assert held.at("again") == other
        held.leave("again")
    held.pool.servers[home].state = State.READY
    held.enter("again", talk="a")
    assert held.at("again") == other  # where its last turns are now


@in_loop
async def test_when_no_server_is_well_one_is_asked_all_the_same() -> None:
    held = Held(pool_of(1))
    held.pool.servers[0].state = State.AWAY
    held.enter("a")
    assert held.at("a") == 0


@in_loop
async def test_a_request_that_a_server_failed_goes_before_others_to_the_next() -> None:
    held = Held(pool_of(1, 1))
    held.enter("a", talk="a")
    held.enter("b", talk="b")
    held.enter("waits", talk="c")
    failed = held.tickets["a"].server
    assert failed is not None
    held.tickets["a"].tried.append(failed)
    held.pool.doubt(failed, State.AWAY)
    held.pool.admission.again(held.tickets["a"])
    held.leave("b")
    assert held.at("a") == 1
    assert failed.running == 0


@in_loop
async def test_models_by_name_have_their_own_servers_and_do_not_hold_each_other_up() -> None:
    held = Held(pool_of(1, 1, names="xy"))
    held.enter("x", model="x")
    held.enter("x too", model="x")
    held.enter("y", model="y")
    assert held.places() == {"x": 0, "x too": None, "y": 1}
    held.leave("x", "x too", "y")
    held.enter("unknown", model="claude-something")
    assert held.at("unknown") == 0  # the first model answers to whatever a client insists on


@in_loop
async def test_what_needs_no_place_goes_to_the_conversations_server_that_is_well() -> None:
    held = Held(pool_of(1, 1))
    held.enter("a", talk="a")
    home = held.tickets["a"].server
    assert home is not None
    assert held.pool.any_of(None, b"a") is home
    home.state = State.AWAY
    assert held.pool.any_of(None, b"a") is not home
    held.pool.servers[0].state = held.pool.servers[1].state = State.AWAY
    assert held.pool.any_of(None, b"a") in held.pool.servers
