"""Which clients can work with a model in a given context."""

from __future__ import annotations

from msgspec import Struct

from zluda_stack.catalog.schema import Catalog, ClientMode, Model


class ClientUse(Struct, frozen=True, kw_only=True):
    """Whether a client in one of its modes can work with a model; `why` says why it cannot.

    `context_floor` is what the mode needs, in tokens.
    """

    client: str
    mode: str
    title: str
    context_floor: int
    works: bool
    why: str


def client_uses(catalog: Catalog, model: Model, context: int | None) -> tuple[ClientUse, ...]:
    """Every mode of every client, with `model` in `context` tokens (None: it fits with none)."""
    return tuple(
        ClientUse(
            client=client.name,
            mode=mode.name,
            title=f"{client.title}, {mode.title}",
            context_floor=mode.context_floor,
            works=not _why_not(model, mode, context),
            why=_why_not(model, mode, context),
        )
        for client in catalog.clients.values()
        for mode in client.modes
    )


def agent_floor(catalog: Catalog) -> int:
    """The context in tokens with which every client that needs tools works as installed."""
    modes = [mode for client in catalog.clients.values() for mode in client.modes]
    return max((mode.context_floor for mode in modes if mode.needs_tools), default=0)


def _why_not(model: Model, mode: ClientMode, context: int | None) -> str:
    if mode.needs_tools and not model.tools:
        return "the model calls no tools"
    if mode.context_floor > model.context_length:
        return f"the model was trained for {model.context_length} tokens"
    if context is None:
        return "it does not fit"
    return f"only {context} tokens fit" if context < mode.context_floor else ""
