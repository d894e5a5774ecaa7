"""Which clients can work with a model in a given context."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from zluda_stack.catalog.schema import Catalog, Client, ClientMode, Model


class ClientUse(Struct, frozen=True, kw_only=True):
    """Whether a client in one of its modes can work with a model; `why` says why it cannot.

    `context_floor` is what the mode needs, in tokens. `how` is what must be left to the machine for
    that, empty where a card has all of the model.
    """

    client: str
    mode: str
    title: str
    context_floor: int
    works: bool
    why: str
    how: str


class InContext(Struct, frozen=True, kw_only=True):
    """Whether a model is served with some context: `why` it is not, or `how` it is if not whole."""

    why: str = ""
    how: str = ""


def client_uses(
    catalog: Catalog, model: Model, served: Callable[[int], InContext]
) -> tuple[ClientUse, ...]:
    """Every mode of every client with `model`; `served` tells of a context in tokens."""
    return tuple(
        _use(client, mode, _judged(model, mode, served))
        for client in catalog.clients.values()
        for mode in client.modes
    )


def up_to(longest: int | None) -> Callable[[int], InContext]:
    """What is served of a model that fits with `longest` tokens, None: with none."""

    def served(context: int) -> InContext:
        if longest is None:
            return InContext(why="it does not fit")
        return InContext(why=f"only {longest} tokens fit" if longest < context else "")

    return served


def agent_floor(catalog: Catalog) -> int:
    """The context in tokens with which every client that needs tools works as installed."""
    modes = [mode for client in catalog.clients.values() for mode in client.modes]
    return max((mode.context_floor for mode in modes if mode.needs_tools), default=0)


def _use(client: Client, mode: ClientMode, found: InContext) -> ClientUse:
    return ClientUse(
        client=client.name,
        mode=mode.name,
        title=f"{client.title}, {mode.title}",
        context_floor=mode.context_floor,
        works=not found.why,
        why=found.why,
        how=found.how,
    )


def _judged(model: Model, mode: ClientMode, served: Callable[[int], InContext]) -> InContext:
    if mode.needs_tools and not model.tools:
        return InContext(why="the model calls no tools")
    if mode.context_floor > model.context_length:
        return InContext(why=f"the model was trained for {model.context_length} tokens")
    return served(mode.context_floor)
