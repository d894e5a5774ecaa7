"""The port that a part of a stack is published on: a given one, its own, or the next free one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from msgspec import Struct

from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.types import Notice
from zluda_stack.settings import Configured


class Wanted(Struct, frozen=True, kw_only=True):
    """What a port is looked for by: `setting` names it, and `default` begins the search.

    `own` are the ports at which this very stack has that part now, `reserved` those that its other
    parts are to have. Of a port that is taken a notice of the code `taken` says what it is `of`.
    """

    setting: Literal["port", "webui_port"]
    default: int
    own: frozenset[int]
    reserved: frozenset[int] = frozenset()
    taken: str = "port-taken"
    of: str = ""


class PortChoice(Struct, frozen=True, kw_only=True):
    """The port, why it is that one, and what stands in its way."""

    port: int
    because: str
    unmet: tuple[Notice, ...] = ()


def choose_port(
    facts: HostFacts, configured: Configured, wanted: Wanted, search: int
) -> PortChoice:
    """The port for `wanted` (case C14).

    One that the user named must be free or held by this very stack, else it is unmet. Without a
    name the part stays where it is, or takes the first free one of `search` from the default on.
    """
    busy = (set(facts.listening_ports) - wanted.own) | wanted.reserved
    given: int | None = getattr(configured.settings, wanted.setting)
    if given is not None:
        port, because = given, f"given ({configured.origin(wanted.setting)})"
    else:
        port, because = _unnamed(wanted, busy, search)
    unmet = (_taken(port, facts, wanted),) if port in busy else ()
    return PortChoice(port=port, because=because, unmet=unmet)


def first_free(start: int, search: int, busy: Collection[int]) -> int | None:
    """The first of `search` ports from `start` on that is not `busy`; None when all are."""
    return next((port for port in range(start, start + search) if port not in busy), None)


def _unnamed(wanted: Wanted, busy: set[int], search: int) -> tuple[int, str]:
    own = sorted(wanted.own - wanted.reserved)
    if own:
        return own[0], "this stack already listens there"
    default = wanted.default
    free = first_free(default, search, busy)
    if free is None:
        return default, f"the default; it and the next {search - 1} are taken"
    return free, "the default" if free == default else f"the default {default} is taken"


def _taken(port: int, facts: HostFacts, wanted: Wanted) -> Notice:
    holder = next((one.name for one in facts.running if port in (one.port, one.page_port)), None)
    if port in wanted.reserved:
        by, way = "the endpoint", "Choose"
    elif holder is None:
        by, way = "another program", "Stop it, or choose"
    else:
        by = f"your own stack {holder!r}"
        way = f"Stop it (`zluda-stack down --name {holder}`), or choose"
    return Notice(
        code=wanted.taken,
        message=f"port {port}{wanted.of} is taken by {by}",
        hint=f"{way} another port with --{wanted.setting.replace('_', '-')}.",
    )
