"""With which context, batch and layers a model is served in the memory that a card has.

The arithmetic is that of `zluda_stack.models.fit`. Nothing here takes more than some thirty of
its sums: what a plan may take of a model is found by halving.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from zluda_stack.models.architecture import Architecture
from zluda_stack.models.fit import CELLS, Needs, Serving, needs

# llama.cpp's own n_ubatch, and what is tried where it leaves too little room: without
# FlashAttention the scores of a whole batch are in memory at once, and grow with the context.
BATCHES = (512, 256, 128)


class Room(Struct, frozen=True, kw_only=True):
    """Bytes that a model can have: on the card, and in the machine for layers that do not fit.

    `machine` is None when it is not known. With `shared` the card's memory is the machine's.
    `spare` is what is left alone of the card's.
    """

    card: int
    machine: int | None = None
    shared: bool = False
    spare: int = 0

    @property
    def usable(self) -> int:
        """What a model may take of the card."""
        return self.card - self.spare


class Fitted(Struct, frozen=True, kw_only=True):
    """A way to serve `model`, and what that takes. `gpu_layers` is None for all of them."""

    model: Architecture
    context: int
    batch: int
    gpu_layers: int | None
    needs: Needs


def fit(
    model: Architecture, wish: int | None, floors: Sequence[int], longest: int, room: Room
) -> Fitted | None:
    """How `model` is served in `room` with the context `wish`, else one of at most `longest`.

    A model that has no room for any of the `floors` on the card (in tokens, the best first)
    leaves layers in the machine's memory. None when that does not fit either, and for a `wish`
    that is too long while a shorter context fits.
    """
    if wish is None:
        return whole(model, floors, longest, room) or partly(model, floors, room)
    found = with_context(model, wish, room)
    if found is not None or whole(model, floors, longest, room) is not None:
        return found
    return partly(model, (wish,), room)


def whole(model: Architecture, floors: Iterable[int], longest: int, room: Room) -> Fitted | None:
    """All layers on the card and the longest context up to `longest`, at least a floor.

    `floors` are contexts in tokens, the best first. The batch is the largest that leaves room
    for a floor; a floor comes before a batch. None when not even the last floor fits.
    """
    for floor in floors:
        least = with_context(model, min(floor, longest), room)
        if least is not None:
            return _longest(model, least, longest, room)
    return None


def with_context(model: Architecture, context: int, room: Room) -> Fitted | None:
    """All layers on the card with exactly this context, in the largest batch that fits."""
    *larger, last = BATCHES
    least = _serve(model, context, last, None)  # first: most models that do not fit end here
    if least.needs.total > room.usable:
        return None
    tried = (_serve(model, context, batch, None) for batch in larger)
    return next((found for found in tried if found.needs.total <= room.usable), least)


def partly(model: Architecture, contexts: Iterable[int], room: Room) -> Fitted | None:
    """As many layers as fit with the first context that leaves room for one; the rest outside.

    None when none fits, or when the machine has no room for the rest.
    """
    for context in contexts:
        ways = (_most_layers(model, context, batch, room) for batch in BATCHES)
        fitting = [way for way in ways if way is not None]
        if fitting:
            best = max(fitting, key=lambda way: (way.gpu_layers or 0, way.batch))
            return best if _has_room_outside(best.needs, room) else None
    return None


def longest_context(model: Architecture, most: int, room: Room) -> int | None:
    """The longest context up to `most` with all layers on the card, None when none fits."""
    least = _serve(model, min(CELLS, most), BATCHES[-1], None)
    if least.needs.total > room.usable:
        return None
    return _longest(model, least, most, room).context


def smallest(model: Architecture, context: int) -> Needs:
    """The least that the card must have for all layers with this context."""
    return _serve(model, context, BATCHES[-1], None).needs


def _serve(model: Architecture, context: int, batch: int, layers: int | None) -> Fitted:
    serving = Serving(context=context, batch=batch, gpu_layers=layers)
    return Fitted(
        model=model,
        context=context,
        batch=batch,
        gpu_layers=layers,
        needs=needs(model, serving),
    )


def _longest(model: Architecture, least: Fitted, longest: int, room: Room) -> Fitted:
    """`least` with the longest context that fits in the same batch, a multiple of CELLS."""
    most = _serve(model, longest, least.batch, None)
    if most.needs.total <= room.usable:
        return most
    low, high = least.context // CELLS, -(-longest // CELLS)
    best = least
    while high - low > 1:
        middle = (low + high) // 2
        tried = _serve(model, middle * CELLS, least.batch, None)
        if tried.needs.total <= room.usable:
            low, best = middle, tried
        else:
            high = middle
    return best


def _most_layers(model: Architecture, context: int, batch: int, room: Room) -> Fitted | None:
    """The most layers that fit, but not all: what every layer adds is never negative."""
    low, high, best = 0, len(model.layers) + 1, None
    while high - low > 1:
        middle = (low + high) // 2
        tried = _serve(model, context, batch, middle)
        if tried.needs.total <= room.usable:
            low, best = middle, tried
        else:
            high = middle
    return best


def _has_room_outside(found: Needs, room: Room) -> bool:
    if room.machine is None:
        return True
    return found.host + (found.total if room.shared else 0) <= room.machine
