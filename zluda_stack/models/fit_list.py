"""The models of the catalogue on one card: which fit, which do not and why, the best first."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, structs

from zluda_stack.catalog.schema import Catalog, Model
from zluda_stack.models.architecture import Architecture
from zluda_stack.models.client_use import InContext, client_uses
from zluda_stack.models.fit import BATCHES, Serving, needs
from zluda_stack.models.fit_report import (
    CardMemory,
    ExpertsOutside,
    experts_outside,
    fitting_batch,
    longest_context,
)
from zluda_stack.models.flash import as_served
from zluda_stack.settings import Profile


class ModelOnCard(Struct, frozen=True, kw_only=True):
    """What the card can do with one model. Sizes are in bytes, the contexts in tokens.

    `fits` is whether it does with the context that was asked for, None where nobody knows; `why`
    is the reason when it is not so. `total` is what it takes of the card with that context, or
    with all of a shorter one that it was trained for; `experts_outside` is how it can be served
    though it does not fit. `ways` are the modes of clients, as client/mode, that it can serve with
    all layers on the card, but for experts where need be.
    """

    name: str
    parameters: str
    active: str | None
    quantisation: str
    tools: bool
    restriction: str
    trained_context: int
    fits: bool | None
    why: str
    total: int | None
    batch: int | None
    largest_context: int | None
    experts_outside: ExpertsOutside | None
    ways: tuple[str, ...]


class ModelsOnCard(Struct, frozen=True, kw_only=True):
    """The answer of `models list --fits` for one card, sizes in bytes.

    `unserved` is why the profile does not serve it, where it does not.
    """

    card: str
    memory: int
    free: int
    unserved: str | None
    context: int
    slots: int
    profile: Profile
    models: tuple[ModelOnCard, ...]


def models_on_card(
    catalog: Catalog,
    architectures: Mapping[str, Architecture | None],
    card: CardMemory,
    context: int,
    *,
    profile: Profile = "translated",
    slots: int = 4,
) -> ModelsOnCard:
    """Every model of the catalogue on `card` with `context` tokens, served by `profile`.

    The context is shared by `slots` requests.

    Those that fit come first, of them those that call tools, the largest before the smaller; of
    those that do not fit the nearest comes first.
    """
    serving = Serving(context=context, slots=slots)
    lines = []
    for name, model in catalog.models.items():
        shape = architectures[name]
        asked = serving if shape is None else as_served(shape, serving, profile)
        lines.append((_line(catalog, model, shape, asked, card), model.parameter_count))
    return ModelsOnCard(
        card=card.label,
        memory=card.memory,
        free=card.free,
        unserved=card.unserved,
        context=context,
        slots=serving.slots,
        profile=profile,
        models=tuple(line for line, _ in sorted(lines, key=_rank)),
    )


def _rank(line: tuple[ModelOnCard, int]) -> tuple[int, bool, int, int]:
    model, parameters = line
    if model.fits:
        return (0, not model.tools, -parameters, -(model.total or 0))
    return (1 if model.total else 2, False, model.total or 0, 0)


def _line(
    catalog: Catalog,
    model: Model,
    architecture: Architecture | None,
    serving: Serving,
    card: CardMemory,
) -> ModelOnCard:
    asked = structs.replace(serving, context=min(serving.context, model.context_length))
    total = batch = longest = outside = None
    if architecture is not None:
        batch = fitting_batch(architecture, asked, card.free)
        chosen = structs.replace(asked, batch=batch or BATCHES[-1])
        total = needs(architecture, chosen).total
        longest = longest_context(architecture, asked, card.free)
        outside = experts_outside(architecture, asked, card)
    why = _why_not(model, serving.context, total, card)
    return ModelOnCard(
        name=model.name,
        parameters=model.parameters,
        active=model.active,
        quantisation=model.quantisation,
        tools=model.tools,
        restriction=model.restriction,
        trained_context=model.context_length,
        fits=None if total is None else not why,
        why=why,
        total=total,
        batch=batch,
        largest_context=longest,
        experts_outside=outside,
        ways=_ways(catalog, model, architecture, asked, card),
    )


def _ways(
    catalog: Catalog,
    model: Model,
    architecture: Architecture | None,
    serving: Serving,
    card: CardMemory,
) -> tuple[str, ...]:
    def served(context: int) -> InContext:
        return _on_card(architecture, structs.replace(serving, context=context), card)

    uses = client_uses(catalog, model, served)
    return tuple(f"{use.client}/{use.mode}" for use in uses if use.works)


def _on_card(architecture: Architecture | None, serving: Serving, card: CardMemory) -> InContext:
    if architecture is None:
        return InContext(why="unknown until pulled")
    whole = fitting_batch(architecture, serving, card.free) is not None
    works = whole or experts_outside(architecture, serving, card) is not None
    return InContext(why="" if works else "it does not fit")


def _why_not(model: Model, context: int, total: int | None, card: CardMemory) -> str:
    if total is None:
        return "unknown until pulled"
    if total > card.free:
        return f"{(total - card.free) / 2**30:.1f} GiB too large"
    if model.context_length < context:
        return f"trained for {model.context_length}"
    return ""
