"""Whether a client's own prompt leaves room to work in a model's context."""

from __future__ import annotations

from zluda_stack.catalog.schema import Client, ClientMode
from zluda_stack.plan.types import Notice


def fits(client: Client, mode: ClientMode, context: int) -> Notice | None:
    """None when `client` in `mode` can work in `context` tokens, else why not and what to do."""
    if context >= mode.context_floor:
        return None
    return Notice(
        code="context-too-small",
        message=(
            f"{client.title} ({mode.title}) needs a context of {mode.context_floor} tokens, of which its own prompt "
            f"takes {mode.prompt_tokens}; the model is served with {context}"
        ),
        hint=f"Serve a model with a context of {mode.context_floor} tokens or more "
        "(`zluda-stack models list`, then `zluda-stack up --model NAME --context TOKENS`).",
    )
