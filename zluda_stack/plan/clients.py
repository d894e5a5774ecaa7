"""Whether a client's own prompt leaves room to work in a model's context."""

from __future__ import annotations

from zluda_stack.catalog.schema import Catalog, Client, ClientMode
from zluda_stack.plan.types import Notice

# The client that the default model is chosen for.
CODING_CLIENT = "claude"


def by_need(client: Client) -> list[ClientMode]:
    """The client's modes, that with the longest context first."""
    return sorted(client.modes, key=lambda mode: -mode.context_floor)


def floors(catalog: Catalog) -> list[int]:
    """The contexts, in tokens, with which some client works, the longest first."""
    modes = (mode for client in catalog.clients.values() for mode in client.modes)
    return sorted({mode.context_floor for mode in modes}, reverse=True)


def fits(client: Client, mode: ClientMode, context: int) -> Notice | None:
    """None when `client` in `mode` can work in `context` tokens, else why not and what to do."""
    if context >= mode.context_floor:
        return None
    return Notice(
        code="context-too-small",
        message=(
            f"{client.title} ({mode.title}) needs a context of {mode.context_floor} tokens"
            f"{_own_prompt(mode)}; the model is served with {context}"
        ),
        hint=_larger(mode) + _smaller(client, context),
    )


def _own_prompt(mode: ClientMode) -> str:
    return f", of which its own prompt takes {mode.prompt_tokens}" if mode.prompt_tokens else ""


def _larger(mode: ClientMode) -> str:
    return (
        f"Serve a model with a context of {mode.context_floor} tokens or more: "
        "`zluda-stack up --model PATH --context TOKENS`."
    )


def _smaller(client: Client, context: int) -> str:
    """The way on with another mode of the client, when one fits."""
    for other in client.modes[1:]:
        if context >= other.context_floor:
            return (
                f" Or use it {other.title}, which fits: "
                f"`zluda-stack connect {client.name} --{other.name}`."
            )
    return ""
