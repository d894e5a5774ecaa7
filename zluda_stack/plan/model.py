"""Which model is served, and how: its context length, and what of it is on the card."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, structs

from zluda_stack.catalog.nearest import did_you_mean
from zluda_stack.catalog.schema import Catalog, Model
from zluda_stack.errors import PlanRefused
from zluda_stack.host.facts import HostFacts, LocalModelFacts
from zluda_stack.models.architecture import Architecture
from zluda_stack.models.published import architecture_of
from zluda_stack.plan import model_words as words
from zluda_stack.plan.clients import floors
from zluda_stack.plan.combination import combination_of, server_of
from zluda_stack.plan.default_model import largest_that_fits
from zluda_stack.plan.model_fit import (
    SPARE,
    Fitted,
    Room,
    fit_for_clients,
    longest_context,
    usual_context,
)
from zluda_stack.plan.model_on_cpu import little_free, memory_of, on_cpu
from zluda_stack.plan.types import Decision, GpuDevice, ModelPlan, Notice
from zluda_stack.settings import Configured, Settings


class ModelChoice(Struct, frozen=True, kw_only=True):
    """The model, why it and how it is served, and what its user should know.

    `unmet` is what this machine lacks to serve it.
    """

    model: ModelPlan
    decisions: tuple[Decision, ...]
    warnings: tuple[Notice, ...] = ()
    unmet: tuple[Notice, ...] = ()


class _Named(Struct, frozen=True, kw_only=True):
    """A model before its context is known; `shape` is that of a file of the user's."""

    name: str
    catalogued: Model | None = None
    path: str | None = None
    trained: int | None
    shape: Architecture | None = None


def names_a_file(model: str) -> bool:
    """True when the setting `model` is the path of a GGUF file and not a name."""
    return "/" in model or model in {".", ".."} or model.lower().endswith(".gguf")


def choose_model(
    facts: HostFacts, configured: Configured, catalog: Catalog, gpus: tuple[GpuDevice, ...]
) -> ModelChoice:
    """The model for these settings on `gpus`.

    Each of them holds all of it, or all of them together what does not fit on one. Without a
    wish it is the largest that fits the memory that is free on each; on the CPU, and where that
    memory is not known, the catalogue's default. Raises PlanRefused for an unknown name, an
    unusable file, a context that is longer than the model was trained for (llama.cpp would cap
    it with nothing but a line in its log), and for what does not fit.
    """
    settings = configured.settings
    room = _room(facts, gpus, settings, server_of(catalog, combination_of(catalog, settings)).slots)
    best = None
    if room is not None and settings.model is None:
        best = largest_that_fits(catalog, room, facts.models_ready, settings.context)
    if room is not None and best is not None:
        named = _of_catalogue(best.model)
        because = words.largest(best.client, best.mode, settings.context)
        choice = _served(configured, named, best.fitted, room, because)
    else:
        named = _find(facts, catalog, settings.model or catalog.defaults.model)
        unknown = bool(gpus) and room is None
        choice = _as_wished(configured, catalog, named, room, words.default(unknown_memory=unknown))
    if not gpus:
        choice = _on_cpu(facts, configured, catalog, named, choice)
    return choice


def _on_cpu(
    facts: HostFacts, configured: Configured, catalog: Catalog, named: _Named, choice: ModelChoice
) -> ModelChoice:
    """`choice` with the context for which the machine has memory, where both are known."""
    settings, longest = configured.settings, choice.model.context
    memory, shape = memory_of(facts, settings), _shape(named)
    if memory is None or shape is None:
        return choice
    least = [min(floor, longest) for floor in floors(catalog)]
    found = on_cpu(shape, settings.context, least, longest, memory)
    return structs.replace(
        choice,
        model=structs.replace(choice.model, context=found.context),
        decisions=words.in_machine(choice.decisions, found.context, found.total, memory),
        warnings=choice.warnings
        + (() if found.unmet else little_free(facts, settings, found.total)),
        unmet=found.unmet,
    )


def model_anywhere(facts: HostFacts, configured: Configured, catalog: Catalog) -> ModelPlan:
    """The model for these settings where nothing is known of a card.

    Raises PlanRefused for an unknown name and an unusable file.
    """
    named = _find(facts, catalog, configured.settings.model or catalog.defaults.model)
    return _plan(named, usual_context(configured.settings.context, named.trained, catalog))


def _room(
    facts: HostFacts, gpus: tuple[GpuDevice, ...], settings: Settings, slots: int
) -> Room | None:
    """What the cards have free; None where nobody knows, and on the CPU."""
    # In the order of the compute driver, which is that of the CUDA devices in a container.
    ordered = sorted(gpus, key=lambda gpu: gpu.index or 0)
    free = tuple(gpu.free_bytes for gpu in ordered if gpu.free_bytes is not None)
    if not gpus or len(free) < len(gpus):
        return None
    shared = any(gpu.integrated for gpu in gpus)
    elsewhere = any(gpu.index is None for gpu in gpus)
    machine = None if elsewhere else facts.memory_bytes
    return Room(
        cards=free,
        machine=machine,
        shared=shared,
        spare=0 if settings.context else SPARE,
        profile=settings.profile,
        slots=slots,
    )


def _find(facts: HostFacts, catalog: Catalog, name: str) -> _Named:
    """The model `name`: a file, one of the catalogue, or what the store has under that name."""
    if names_a_file(name):
        return _local(facts.local_model, name)
    known = catalog.models.get(name)
    if known is not None:
        return _of_catalogue(known)
    if facts.local_model is not None:
        return structs.replace(_local(facts.local_model, name), name=name)
    raise PlanRefused(
        f"no model named {name!r}",
        f"{did_you_mean(name, catalog.models)}`zluda-stack models list` shows all. The path of "
        "a GGUF file works too, with a slash in it or .gguf at its end.",
    )


def _of_catalogue(model: Model) -> _Named:
    return _Named(name=model.name, catalogued=model, trained=model.context_length)


def _local(header: LocalModelFacts | None, name: str) -> _Named:
    if header is None:
        raise PlanRefused(
            f"nothing is known of the file {name}",
            "Replayed host facts hold only the file that was named when they were captured.",
        )
    if header.problem is not None:
        raise PlanRefused(f"{header.path}: {header.problem}", "Give the path of a whole GGUF file.")
    return _Named(
        name=_served_name(Path(header.path).stem),
        path=header.path,
        trained=header.context_length,
        shape=header.shape,
    )


def _served_name(stem: str) -> str:
    """The file's name as clients can use it in a request: lower case, no blanks."""
    return "-".join(stem.lower().split()) or "local"


def _shape(named: _Named) -> Architecture | None:
    """None for a model of which nobody can tell what it takes."""
    return named.shape if named.catalogued is None else architecture_of(named.catalogued)


def _as_wished(
    configured: Configured, catalog: Catalog, named: _Named, room: Room | None, because: str
) -> ModelChoice:
    """The model `named` as it is asked for, or as it fits where that is known.

    `because` is why it and no other, where nobody asked for it.
    """
    wish, trained = configured.settings.context, named.trained
    if wish is not None and trained is not None and wish > trained:
        raise PlanRefused(
            f"context {wish} is longer than {named.name} was trained for ({trained} tokens)",
            f"Ask for at most {trained}, or choose a model that was trained for more.",
        )
    shape = None if room is None else _shape(named)
    if room is None or shape is None:
        model = _plan(named, usual_context(wish, trained, catalog))
        return ModelChoice(model=model, decisions=words.as_asked(configured, model, because))
    fitted = fit_for_clients(shape, trained, wish, catalog, room)
    if fitted is None:
        other = _other(named, catalog, room)
        least = usual_context(wish or floors(catalog)[-1], trained, catalog)
        raise words.refusal(named.name, shape, least, room, other)
    choice = _served(configured, named, fitted, room, because)
    return structs.replace(choice, warnings=_warnings(configured, catalog, named, fitted, room))


def _warnings(
    configured: Configured, catalog: Catalog, named: _Named, fitted: Fitted, room: Room
) -> tuple[Notice, ...]:
    warnings = []
    if configured.settings.model is None:
        warnings.append(words.nothing_for_coding(named.name, room))
    if fitted.split:
        warnings.append(words.spread_over_cards(named.name, len(fitted.split), room.profile))
    if fitted.gpu_layers is not None or fitted.cpu_moe:
        wish, other = configured.settings.context, _other(named, catalog, room)
        shorter = None if wish is None else longest_context(fitted.model, wish, room)
        warnings.append(words.partly_on_card(named.name, fitted, room, other, shorter))
    return tuple(warnings)


def _other(named: _Named, catalog: Catalog, room: Room) -> str | None:
    """Another model that fits as a whole and serves a coding client, None where there is none."""
    best = largest_that_fits(catalog, room, ())
    return None if best is None or best.model.name == named.name else best.model.name


def _served(
    configured: Configured, named: _Named, fitted: Fitted, room: Room, because: str
) -> ModelChoice:
    model = _plan(named, fitted.context)
    return ModelChoice(
        model=structs.replace(
            model,
            batch=fitted.batch,
            gpu_layers=fitted.gpu_layers,
            cpu_moe=fitted.cpu_moe,
            split=fitted.split,
        ),
        decisions=words.in_room(configured, named.name, fitted, room, because),
    )


def _plan(named: _Named, context: int) -> ModelPlan:
    return ModelPlan(
        name=named.name,
        catalogued=named.catalogued,
        path=named.path,
        context=context,
        trained_context=named.trained,
    )
