"""The model that is served where the user named none: the largest that can do the work."""

from __future__ import annotations

from collections.abc import Container, Iterator

from msgspec import Struct

from zluda_stack.catalog.schema import Catalog, Client, ClientMode, Model
from zluda_stack.models.fit import RUNTIME
from zluda_stack.models.gguf_types import TENSOR_TYPES
from zluda_stack.models.published import architecture_of
from zluda_stack.plan.clients import CODING_CLIENT, by_need
from zluda_stack.plan.model_fit import Fitted, Room, on_each, whole

# "9B" stands for anything from 8.5.
_ROUNDED = 0.94
_CACHED_BYTES = 2  # keys and values are f16


class DefaultModel(Struct, frozen=True, kw_only=True):
    """A model that fits, how it is served, and the coding client that it has room for."""

    model: Model
    fitted: Fitted
    client: Client
    mode: ClientMode


def largest_that_fits(
    catalog: Catalog, room: Room, ready: Container[str], context: int | None = None
) -> DefaultModel | None:
    """The largest model that calls tools, fits and has room for a coding client's prompt.

    Of those with the same number of parameters one that is `ready` comes first. Where none has
    room for the client as it is installed, one for its smaller mode is taken; with `context`
    one that can be served with exactly that. None where nothing fits.
    """
    client = catalog.clients.get(CODING_CLIENT)
    if client is None:
        return None
    modes = by_need(client)
    for mode in modes if context is None else modes[:1]:
        floor = context or mode.context_floor
        for model in _candidates(catalog, room, ready, floor):
            shape = architecture_of(model)
            longest = context or min(model.context_length, catalog.defaults.context_ceiling)
            fitted = None if shape is None else whole(shape, (floor,), longest, on_each(room))
            if fitted is not None:
                return DefaultModel(model=model, fitted=fitted, client=client, mode=mode)
    return None


def _candidates(
    catalog: Catalog, room: Room, ready: Container[str], context: int
) -> Iterator[Model]:
    """Those that may fit, the largest first; none whose licence restricts what it is used for."""
    able = (
        model
        for model in catalog.models.values()
        if model.tools and not model.restriction and model.context_length >= context
    )
    ordered = sorted(
        able, key=lambda one: (-one.parameter_count, one.name not in ready, -(one.size or 0))
    )
    return (model for model in ordered if _least(model, context) <= room.usable)


def _least(model: Model, context: int) -> int:
    """Fewer bytes than it takes of a card: most of the catalogue need no closer look.

    Numbers of parameters are rounded, and no tensor of a mixture has fewer bits than its name.
    """
    shape = model.shape
    if shape is None:
        return 0
    on_host = 0 if shape.tied else shape.embedding * shape.vocabulary
    weights = (model.parameter_count * _ROUNDED - on_host) * _bits(model.quantisation) / 8
    plain = not (shape.window or shape.linear or shape.latent)
    token = 2 * shape.layers * shape.kv_heads * shape.head * _CACHED_BYTES if plain else 0
    return int(weights) + context * token + RUNTIME


def _bits(quantisation: str) -> float:
    """The bits of a weight in the tensor type that a mixture is named after."""
    named = (kind for kind in TENSOR_TYPES.values() if kind.name in quantisation)
    return min((kind.size * 8 / kind.block for kind in named), default=0)
