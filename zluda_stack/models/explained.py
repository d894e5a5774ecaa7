"""What one model of the catalogue takes of some cards, and which clients can work with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from zluda_stack.catalog.schema import Catalog, Model
from zluda_stack.models.architecture import Architecture
from zluda_stack.models.client_use import ClientUse, InContext, client_uses, up_to
from zluda_stack.models.fit import BATCHES, CELLS, Serving, needs
from zluda_stack.models.fit_report import CardMemory, longest_context
from zluda_stack.models.flash import as_served
from zluda_stack.plan.model_fit import SPARE, Fitted, fit_for_clients, room_on
from zluda_stack.settings import Profile


class How(Struct, frozen=True, kw_only=True):
    """How a model is served: by what a plan is made of beside the model.

    `context` is that of the settings, None for as long as fits; `slots` how many requests share it;
    `unable` the name of the server where it cannot load the model.
    """

    profile: Profile = "translated"
    slots: int = 4
    context: int | None = None
    unable: str | None = None


class Planned(Struct, frozen=True, kw_only=True):
    """How `up --model NAME` serves it on a card; sizes in bytes, `spare` what is left alone there.

    Of the model's `layers` the card has `gpu_layers`, but for the experts of the first
    `experts_outside`; it holds `total`, and the machine's memory `host`.
    """

    context: int
    batch: int
    layers: int
    gpu_layers: int
    experts_outside: int
    total: int
    host: int
    spare: int


class OnCard(Struct, frozen=True, kw_only=True):
    """A card and the longest context in tokens with which it has room for all of the model.

    Sizes are in bytes. `least` is what all of it takes at the very least, None where that is not
    known. `planned` is None too where it would be refused, and where the profile does not serve
    the card; `unserved` says why it does not.
    """

    card: str
    memory: int
    free: int
    least: int | None
    longest_context: int | None
    planned: Planned | None
    unserved: str | None


class Explained(Struct, frozen=True, kw_only=True):
    """`uses` are judged by the card that has most of it; without any by what it was trained for."""

    cards: tuple[OnCard, ...]
    uses: tuple[ClientUse, ...]


def explained(
    catalog: Catalog,
    model: Model,
    architecture: Architecture | None,
    cards: Sequence[CardMemory],
    how: How,
) -> Explained:
    """What `model` takes of each of `cards`, and the clients that it is of use to."""
    served = up_to(model.context_length)
    if cards and architecture is not None:
        served = _served(catalog, model, architecture, cards, how)
    return Explained(
        cards=tuple(_on_card(catalog, model, architecture, card, how) for card in cards),
        uses=client_uses(catalog, model, served),
    )


def _on_card(
    catalog: Catalog,
    model: Model,
    architecture: Architecture | None,
    card: CardMemory,
    how: How,
) -> OnCard:
    least = longest = planned = None
    if architecture is not None:
        serving = Serving(context=CELLS, slots=how.slots, batch=BATCHES[-1])
        serving = as_served(architecture, serving, how.profile)
        least = needs(architecture, serving).total
        longest = longest_context(architecture, serving, card.free)
        planned = _planned(catalog, model, architecture, card, how)
    return OnCard(
        card=card.label,
        memory=card.memory,
        free=card.free,
        least=least,
        longest_context=longest,
        planned=planned,
        unserved=card.unserved,
    )


def _planned(
    catalog: Catalog, model: Model, architecture: Architecture, card: CardMemory, how: How
) -> Planned | None:
    too_long = how.context is not None and how.context > model.context_length
    if card.unserved is not None or how.unable is not None or too_long:
        return None
    room = room_on(card, how.profile, how.slots, spare=0 if how.context else SPARE)
    fitted = fit_for_clients(architecture, model.context_length, how.context, catalog, room)
    if fitted is None:
        return None
    layers = len(architecture.layers)
    return Planned(
        context=fitted.context,
        batch=fitted.batch,
        layers=layers,
        gpu_layers=layers if fitted.gpu_layers is None else fitted.gpu_layers - 1,  # the output
        experts_outside=fitted.cpu_moe,
        total=fitted.needs.total,
        host=fitted.needs.host,
        spare=room.spare,
    )


def _served(
    catalog: Catalog,
    model: Model,
    architecture: Architecture,
    cards: Sequence[CardMemory],
    how: How,
) -> Callable[[int], InContext]:
    """What `up --model NAME --context TOKENS` serves on the best of `cards`."""
    if how.unable is not None:
        return lambda _: InContext(why=f"{how.unable} cannot load it")
    rooms = [
        room_on(card, how.profile, how.slots, spare=0) for card in cards if card.unserved is None
    ]
    if not rooms:
        return lambda _: InContext(why=f"the {how.profile} profile does not serve the card")
    serving = as_served(architecture, Serving(context=CELLS, slots=how.slots), how.profile)
    longest = max(longest_context(architecture, serving, room.usable) or 0 for room in rooms)

    def served(context: int) -> InContext:
        ways = (
            fit_for_clients(architecture, model.context_length, context, catalog, room)
            for room in rooms
        )
        found = [way for way in ways if way is not None]
        if not found:
            return up_to(longest or None)(context)
        best = min(found, key=lambda way: (way.gpu_layers is not None, way.cpu_moe > 0))
        return InContext(how=_left_out(best))

    return served


def _left_out(fitted: Fitted) -> str:
    """What the machine has of it."""
    if fitted.gpu_layers is not None:
        return "with layers left to the CPU"
    return "with experts in the machine's memory" if fitted.cpu_moe else ""
