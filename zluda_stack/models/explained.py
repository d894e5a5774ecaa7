"""What one model of the catalogue takes of some cards, and which clients can work with it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from zluda_stack.catalog.schema import Catalog, Model
from zluda_stack.models.architecture import Architecture
from zluda_stack.models.client_use import ClientUse, agent_floor, client_uses
from zluda_stack.models.fit import BATCHES, CELLS, Serving, needs
from zluda_stack.models.fit_report import (
    CardMemory,
    ExpertsOutside,
    experts_outside,
    longest_context,
)
from zluda_stack.models.flash import as_served
from zluda_stack.settings import Profile


class OnCard(Struct, frozen=True, kw_only=True):
    """A card and the longest context in tokens that it has room for; sizes in bytes.

    `least` is what the model takes at the very least, None where that is not known;
    `experts_outside` how it is served there with room for a coding client's prompt, where its
    experts must be left out in part for that.
    """

    card: str
    memory: int
    free: int
    least: int | None
    longest_context: int | None
    experts_outside: ExpertsOutside | None


class Explained(Struct, frozen=True, kw_only=True):
    """`uses` are judged by the card with the most room, without any by what it was trained for."""

    cards: tuple[OnCard, ...]
    uses: tuple[ClientUse, ...]


def explained(
    catalog: Catalog,
    model: Model,
    architecture: Architecture | None,
    cards: Sequence[CardMemory],
    profile: Profile = "translated",
) -> Explained:
    """What `model` takes of each of `cards`, and the clients that it is of use to."""
    prompt = min(agent_floor(catalog), model.context_length)
    found = tuple(_on_card(architecture, card, profile, prompt) for card in cards)
    context: int | None = model.context_length
    if found and architecture is not None:
        context = max(card.longest_context or 0 for card in found) or None
    return Explained(cards=found, uses=client_uses(catalog, model, context))


def _on_card(
    architecture: Architecture | None, card: CardMemory, profile: Profile, prompt: int
) -> OnCard:
    least = longest = outside = None
    if architecture is not None:
        serving = as_served(architecture, Serving(context=CELLS, batch=BATCHES[-1]), profile)
        least = needs(architecture, serving).total
        longest = longest_context(architecture, serving, card.free)
        asked = structs.replace(serving, context=prompt)
        outside = experts_outside(architecture, asked, card.free)
    return OnCard(
        card=card.label,
        memory=card.memory,
        free=card.free,
        least=least,
        longest_context=longest,
        experts_outside=outside,
    )
