"""With which context, batch and layers a model is served in the memory that cards have.

The arithmetic is that of `zluda_stack.models`. Nothing here takes more than some thirty of its
sums: what a plan may take of a model is found by halving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product

from msgspec import Struct, structs

from zluda_stack.catalog.schema import Catalog
from zluda_stack.models.architecture import Architecture
from zluda_stack.models.fit import (
    BATCHES,
    CELLS,
    Needs,
    Serving,
    fewest_experts_outside,
    needs,
)
from zluda_stack.models.fit_report import CardMemory
from zluda_stack.models.fit_split import needs_by_card
from zluda_stack.models.flash import as_served
from zluda_stack.plan.clients import floors as client_floors
from zluda_stack.settings import Profile

# Left for other programs where nobody asked for a certain context: a desktop that opens one window
# more must not stop the server, and what the driver itself takes was not measured on AMD's cards.
SPARE = 512 * 2**20


class Room(Struct, frozen=True, kw_only=True):
    """Bytes that a model can have: on each card, and in the machine for layers that do not fit.

    `machine` is None when it is not known. With `shared` the cards' memory is the machine's.
    `spare` is what is left alone of each card's; `profile` is what computes on them, and `slots`
    how many requests its server takes at once.
    """

    cards: tuple[int, ...]
    machine: int | None = None
    shared: bool = False
    spare: int = 0
    profile: Profile = "translated"
    slots: int = 4

    @property
    def least(self) -> int:
        """What the card with the least has free."""
        return min(self.cards)

    @property
    def usable(self) -> int:
        """What a model may take of it."""
        return self.least - self.spare


def room_on(card: CardMemory, profile: Profile, slots: int, *, spare: int) -> Room:
    """What is free of one card, for a server of that profile with so many slots."""
    return Room(
        cards=(card.free,),
        machine=card.machine,
        shared=card.shared,
        spare=spare,
        profile=profile,
        slots=slots,
    )


class Fitted(Struct, frozen=True, kw_only=True):
    """A way to serve `model`, and what that takes of a card, of the fullest with `split`.

    `gpu_layers` is None for all of them. `cpu_moe` is of how many layers, from the first on, the
    experts are in the machine's memory. `split` is how many layers each card has when one server
    spreads the model over all cards, empty when each card has a server of its own. `floor` is the
    context, in tokens, that batch and `cpu_moe` were chosen for; None: `context` itself.
    """

    model: Architecture
    context: int
    batch: int
    floor: int | None = None
    gpu_layers: int | None = None
    cpu_moe: int = 0
    split: tuple[int, ...] = ()
    needs: Needs


Place = Callable[[Architecture, int, int], "Fitted | None"]
"""How a model with a context and a batch is put onto the cards; None where it does not fit."""


def fit_for_clients(
    model: Architecture, trained: int | None, wish: int | None, catalog: Catalog, room: Room
) -> Fitted | None:
    """How `model` is served in `room`: as `fit`, with what the clients of `catalog` need.

    `trained` is the context that it was trained for, None where that is not known.
    """
    longest = usual_context(wish, trained, catalog)
    least = [min(floor, longest) for floor in client_floors(catalog)]
    return fit(model, wish, least, longest, room)


def usual_context(wish: int | None, trained: int | None, catalog: Catalog) -> int:
    """The context that was asked for, else the ceiling, as far as the model was trained for it."""
    context = wish or catalog.defaults.context_ceiling
    return min(context, trained or context)


def fit(
    model: Architecture, wish: int | None, floors: Sequence[int], longest: int, room: Room
) -> Fitted | None:
    """How `model` is served in `room` with the context `wish`, else one of at most `longest`.

    Every card has it all; where that leaves no room for one of the `floors` (in tokens, the best
    first), all of them have it together. Else the experts of some layers are left in the machine's
    memory, or where that is not enough whole layers. None when that does not fit either, and for
    a `wish` that would have layers left out while a shorter context fits.
    """
    places = places_in(room)
    if wish is None:
        ways = (whole(model, (floor,), longest, place) for floor in floors for place in places)
        return (
            _first(ways)
            or experts_outside(model, floors, longest, room)
            or partly(model, floors, room)
        )
    found = _first(with_context(model, wish, place) for place in places)
    found = found or experts_outside(model, (wish,), wish, room)
    if found is not None or any(whole(model, floors, longest, place) for place in places):
        return found
    return partly(model, (wish,), room)


def _first(ways: Iterable[Fitted | None]) -> Fitted | None:
    return next((way for way in ways if way is not None), None)


def places_in(room: Room) -> tuple[Place, ...]:
    """The ways to put a whole model onto the cards, the better first."""
    return (on_each(room), over_all(room)) if len(room.cards) > 1 else (on_each(room),)


def on_each(room: Room, cpu_moe: int = 0) -> Place:
    """All layers on each card, but for the experts of the first `cpu_moe`."""

    def place(model: Architecture, context: int, batch: int) -> Fitted | None:
        found = needs(model, _serving(model, context, batch, room, cpu_moe=cpu_moe))
        if found.total > room.usable:
            return None
        return Fitted(model=model, context=context, batch=batch, cpu_moe=cpu_moe, needs=found)

    return place


def over_all(room: Room) -> Place:
    """The layers spread over the cards, as many on each as its free memory is of all."""

    def place(model: Architecture, context: int, batch: int) -> Fitted | None:
        split = _shares(len(model.layers) + 1, room.cards)
        if 0 in split:
            return None
        found = needs_by_card(model, _serving(model, context, batch, room), split)
        left = [
            free - room.spare - each.total for free, each in zip(room.cards, found, strict=True)
        ]
        if min(left) < 0:
            return None
        fullest = found[left.index(min(left))]
        return Fitted(model=model, context=context, batch=batch, split=split, needs=fullest)

    return place


def _shares(count: int, cards: Sequence[int]) -> tuple[int, ...]:
    """`count` divided as the memory of the cards is; what is left goes to the first ones."""
    every = max(1, sum(cards))
    shares = [count * free // every for free in cards]
    rest = count - sum(shares)
    return tuple(share + (number < rest) for number, share in enumerate(shares))


def whole(model: Architecture, floors: Iterable[int], longest: int, place: Place) -> Fitted | None:
    """All layers on cards and the longest context up to `longest`, at least a floor.

    `floors` are contexts in tokens, the best first. The batch is the largest that leaves room
    for a floor; a floor comes before a batch. None when not even the last floor fits.
    """
    for floor in floors:
        least = with_context(model, min(floor, longest), place)
        if least is not None:
            return _longest(least, longest, place)
    return None


def with_context(model: Architecture, context: int, place: Place) -> Fitted | None:
    """All layers on cards with exactly this context, in the largest batch that fits."""
    *larger, last = BATCHES
    least = place(model, context, last)  # first: most models that do not fit end here
    if least is None:
        return None
    tried = (place(model, context, batch) for batch in larger)
    return next((found for found in tried if found is not None), least)


def experts_outside(
    model: Architecture, floors: Iterable[int], longest: int, room: Room
) -> Fitted | None:
    """All layers on each card, but for the experts of as few as leave room for a floor.

    A prompt has what is left out copied to the card once for each batch, so the largest batch
    comes before fewer layers; then the context is the longest that fits beside them. None for a
    model without experts, where nothing fits, and when the machine has no room for the rest.
    """
    for context, batch in product(floors, BATCHES):
        least = _fewest_outside(model, min(context, longest), batch, room)
        if least is not None and least.needs.has_room_outside(room.machine, shared=room.shared):
            return _longest(least, longest, on_each(room, least.cpu_moe))
    return None


def _fewest_outside(model: Architecture, context: int, batch: int, room: Room) -> Fitted | None:
    count = fewest_experts_outside(model, _serving(model, context, batch, room), room.usable)
    return None if count is None else on_each(room, count)(model, context, batch)


def partly(model: Architecture, contexts: Iterable[int], room: Room) -> Fitted | None:
    """As many layers as fit with the first context that leaves room for one; the rest outside.

    None when none fits, or when the machine has no room for the rest.
    """
    for context in contexts:
        ways = (_most_layers(model, context, batch, room) for batch in BATCHES)
        fitting = [way for way in ways if way is not None]
        if fitting:
            best = max(fitting, key=lambda way: (way.gpu_layers or 0, way.batch))
            has_room = best.needs.has_room_outside(room.machine, shared=room.shared)
            return best if has_room else None
    return None


def longest_context(model: Architecture, most: int, room: Room) -> int | None:
    """The longest context up to `most` with all layers on cards, None when none fits."""
    found = []
    for place in places_in(room):
        least = place(model, min(CELLS, most), BATCHES[-1])
        if least is not None:
            found.append(_longest(least, most, place).context)
    return max(found, default=None)


def smallest(model: Architecture, context: int, room: Room) -> Needs:
    """The least that one card must have for all layers with this context."""
    return needs(model, _serving(model, context, BATCHES[-1], room))


def _serving(
    model: Architecture,
    context: int,
    batch: int,
    room: Room,
    *,
    gpu_layers: int | None = None,
    cpu_moe: int = 0,
) -> Serving:
    """How the server of the room's profile is started."""
    serving = Serving(
        context=context, slots=room.slots, batch=batch, gpu_layers=gpu_layers, cpu_moe=cpu_moe
    )
    return as_served(model, serving, room.profile)


def _longest(least: Fitted, longest: int, place: Place) -> Fitted:
    """`least` with the longest context that fits in the same batch, a multiple of CELLS."""
    most = place(least.model, longest, least.batch)
    if most is not None:
        return structs.replace(most, floor=least.context)
    low, high = least.context // CELLS, -(-longest // CELLS)
    best = least
    while high - low > 1:
        middle = (low + high) // 2
        tried = place(least.model, middle * CELLS, least.batch)
        low, high, best = (low, middle, best) if tried is None else (middle, high, tried)
    return structs.replace(best, floor=least.context)


def _most_layers(model: Architecture, context: int, batch: int, room: Room) -> Fitted | None:
    """The most layers that fit, but not all: what every layer adds is never negative."""
    low, high, best = 0, len(model.layers) + 1, None
    while high - low > 1:
        middle = (low + high) // 2
        found = needs(model, _serving(model, context, batch, room, gpu_layers=middle))
        if found.total > room.usable:
            high = middle
            continue
        low = middle
        best = Fitted(model=model, context=context, batch=batch, gpu_layers=middle, needs=found)
    return best
