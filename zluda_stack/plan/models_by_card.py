"""The models of a stack: one on every card, or, where several are named, one for each card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

from zluda_stack.catalog.nearest import did_you_mean
from zluda_stack.catalog.schema import Catalog
from zluda_stack.errors import PlanRefused
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.download import download_of
from zluda_stack.plan.model import ModelChoice, choose_model, model_anywhere, names_a_file
from zluda_stack.plan.types import Decision, GpuDevice, ModelPlan, Notice, catalogued
from zluda_stack.settings import Configured


class ModelsChoice(Struct, frozen=True, kw_only=True):
    """`models` has one for each card in their order, or a single one that serves them all."""

    models: tuple[ModelPlan, ...]
    decisions: tuple[Decision, ...]
    warnings: tuple[Notice, ...] = ()
    unmet: tuple[Notice, ...] = ()


def choose_models(
    facts: HostFacts, configured: Configured, catalog: Catalog, gpus: tuple[GpuDevice, ...]
) -> ModelsChoice:
    """The models for these settings on `gpus`; see choose_model for each of them.

    Raises PlanRefused as that does, and where several are named for another number of cards.
    """
    names = _names(configured)
    if len(names) < 2:
        return _with_downloads(facts, [choose_model(facts, configured, catalog, gpus)])
    _require_known(names, catalog)
    _require_a_card_each(names, gpus)
    chosen = [
        choose_model(facts, _asking_for(configured, name), catalog, (gpu,))
        for name, gpu in zip(names, gpus, strict=True)
    ]
    return _with_downloads(facts, chosen)


def models_anywhere(
    facts: HostFacts, configured: Configured, catalog: Catalog
) -> tuple[ModelPlan, ...]:
    """The models for these settings where nothing is known of a card.

    Raises PlanRefused for an unknown name and an unusable file.
    """
    names = _names(configured) or (None,)
    return tuple(model_anywhere(facts, _asking_for(configured, name), catalog) for name in names)


def _names(configured: Configured) -> tuple[str, ...]:
    """The names that the setting `model` holds; none for the default, and one for a file."""
    wish = configured.settings.model
    if wish is None:
        return ()
    return (wish,) if names_a_file(wish) else tuple(name.strip() for name in wish.split(","))


def _asking_for(configured: Configured, name: str | None) -> Configured:
    return structs.replace(configured, settings=structs.replace(configured.settings, model=name))


def _require_known(names: Sequence[str], catalog: Catalog) -> None:
    """A probe reads one file at most, so that several models are those of the catalogue."""
    for name in names:
        if not name:
            raise PlanRefused(
                f"model is {','.join(names)!r}, which names nothing where a model must be",
                "It takes a model, or one for each card: --gpu 0,1 --model NAME,NAME.",
            )
        if name not in catalog.models:
            raise PlanRefused(
                f"{name} is no model of the catalogue, and only those can be named together",
                f"{did_you_mean(name, catalog.models)}`zluda-stack models list` shows them.",
            )


def _require_a_card_each(names: Sequence[str], gpus: Sequence[GpuDevice]) -> None:
    if len(names) == len(gpus):
        return
    cards = f"{len(gpus)} card{'s' * (len(gpus) != 1)}" if gpus else "the CPU"
    numbers = ",".join(str(number) for number in range(len(names)))
    raise PlanRefused(
        f"{len(names)} models were named, for a card each, and {cards} would serve them",
        f"Name the cards with --gpu {numbers} (`zluda-stack gpus` shows them), or one model.",
    )


def _with_downloads(facts: HostFacts, chosen: Sequence[ModelChoice]) -> ModelsChoice:
    """What was `chosen` for the cards, as one choice."""
    models = tuple(one.model for one in chosen)
    fetched = catalogued(one for one in models if one.name not in facts.models_ready)
    return ModelsChoice(
        models=models,
        decisions=(*_numbered(chosen), *download_of(fetched)),
        warnings=tuple(dict.fromkeys(notice for one in chosen for notice in one.warnings)),
        unmet=tuple(dict.fromkeys(notice for one in chosen for notice in one.unmet)),
    )


def _numbered(chosen: Sequence[ModelChoice]) -> Iterator[Decision]:
    """The decisions of all; those on further cards have the number of their server."""
    for number, one in enumerate(chosen, start=1):
        for decision in one.decisions:
            what = decision.what if number == 1 else f"{decision.what} {number}"
            yield structs.replace(decision, what=what)
