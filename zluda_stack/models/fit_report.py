"""Whether a model fits the cards that are asked about, as facts to print."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, structs

from zluda_stack.models.architecture import Architecture
from zluda_stack.models.fit import (
    BATCHES,
    COMPARED,
    Attention,
    KvType,
    Needs,
    Serving,
    fewest_experts_outside,
    largest_context,
    most_layers,
    needs,
)


class CardMemory(Struct, frozen=True, kw_only=True):
    """A card to fit a model on; sizes in bytes, `used` what other programs hold of it.

    `machine` is the memory of the machine that it is in, None where that is not known; with
    `shared` the card's memory is a part of it. `unserved` says why the profile does not serve the
    card, and what does; None where it serves it, and where nobody knows which card it is.
    """

    label: str
    memory: int
    used: int = 0
    machine: int | None = None
    shared: bool = False
    unserved: str | None = None

    @property
    def free(self) -> int:
        """What a model can have."""
        return max(0, self.memory - self.used)


class ExpertsOutside(Struct, frozen=True, kw_only=True):
    """A way to serve a model with experts on a card that does not hold all of it.

    The experts of the first `layers` layers are in the machine's memory (llama.cpp's --n-cpu-moe),
    which holds `host` bytes of the model then, and the card `total`. `batch` is as a plan takes it.
    """

    layers: int
    batch: int
    total: int
    host: int


class CardFit(Struct, frozen=True, kw_only=True):
    """What one card can do with the model.

    `batch` is the largest of those that a plan chooses from (n_ubatch) with which the context that
    was asked for fits, None when none does; `largest_context` is in tokens, None when the model
    fits with none. `gpu_layers` is how many of the layers (the output is one more) fit at the
    context that was asked for; `experts_outside` how it is served there instead, where it can be.
    `unserved` is the card's: why the profile does not serve it.
    """

    card: str
    memory: int
    free: int
    fits: bool
    batch: int | None
    largest_context: int | None
    gpu_layers: int | None
    experts_outside: ExpertsOutside | None
    unserved: str | None


class FitReport(Struct, frozen=True, kw_only=True):
    """The answer of `models fit`. Sizes are in bytes, the contexts in tokens.

    `compared` is whether the compute buffers of this architecture were compared with llama.cpp's.
    """

    model: str
    architecture: str
    compared: bool
    layers: int
    context: int
    trained_context: int | None
    slots: int
    kv_type: KvType
    attention: Attention
    needs: Needs
    total: int
    cards: tuple[CardFit, ...]


def fit_report(
    name: str, model: Architecture, serving: Serving, cards: Iterable[CardMemory]
) -> FitReport:
    """How the model named `name`, served like that, fits each of `cards`."""
    found = needs(model, serving)
    return FitReport(
        model=name,
        architecture=model.name,
        compared=model.name in COMPARED,
        layers=len(model.layers),
        context=serving.context,
        trained_context=model.context_length,
        slots=serving.slots,
        kv_type=serving.kv_type,
        attention=serving.attention,
        needs=found,
        total=found.total,
        cards=tuple(_card_fit(model, serving, card) for card in cards),
    )


def fitting_batch(model: Architecture, serving: Serving, memory: int) -> int | None:
    """The largest batch of a plan with which the model fits `memory` bytes, None when none."""
    totals = ((batch, _in_batch(model, serving, batch)) for batch in BATCHES)
    return next((batch for batch, total in totals if total <= memory), None)


def longest_context(model: Architecture, serving: Serving, memory: int) -> int | None:
    """The longest context in tokens that fits `memory` bytes in a plan's smallest batch, if any."""
    return largest_context(model, structs.replace(serving, batch=BATCHES[-1]), memory)


def experts_outside(
    model: Architecture, serving: Serving, card: CardMemory
) -> ExpertsOutside | None:
    """How a plan serves the model where what is free of `card` does not hold all of it.

    As there the largest batch comes before fewer layers. None where all of it fits, where not even
    this does, where the machine has no room for the rest, and for a model without experts.
    """
    if fitting_batch(model, serving, card.free) is not None:
        return None
    for batch in BATCHES:
        asked = structs.replace(serving, batch=batch)
        count = fewest_experts_outside(model, asked, card.free)
        if count is not None:
            found = needs(model, structs.replace(asked, cpu_moe=count))
            if found.has_room_outside(card.machine, shared=card.shared):
                return ExpertsOutside(layers=count, batch=batch, total=found.total, host=found.host)
    return None


def _in_batch(model: Architecture, serving: Serving, batch: int) -> int:
    return needs(model, structs.replace(serving, batch=batch)).total


def _card_fit(model: Architecture, serving: Serving, card: CardMemory) -> CardFit:
    batch = fitting_batch(model, serving, card.free)
    smallest = structs.replace(serving, batch=BATCHES[-1])
    layers = len(model.layers) + 1 if batch else most_layers(model, smallest, card.free)
    return CardFit(
        card=card.label,
        memory=card.memory,
        free=card.free,
        fits=batch is not None,
        batch=batch,
        largest_context=longest_context(model, serving, card.free),
        gpu_layers=layers,
        experts_outside=experts_outside(model, serving, card),
        unserved=card.unserved,
    )
