"""Which model is served, and with which context length."""

from __future__ import annotations

from pathlib import Path

from zluda_stack.catalog.nearest import did_you_mean
from zluda_stack.catalog.schema import Catalog
from zluda_stack.errors import PlanRefused
from zluda_stack.host.facts import HostFacts, LocalModelFacts
from zluda_stack.plan.types import ModelPlan


def names_a_file(model: str) -> bool:
    """True when the setting `model` is the path of a GGUF file and not a catalogue name."""
    return "/" in model or model.lower().endswith(".gguf")


def choose_model(
    facts: HostFacts, catalog: Catalog, wish: str | None, context: int | None
) -> ModelPlan:
    """The model for `wish` (None: the catalogue's default) and its context length in tokens.

    Raises PlanRefused for an unknown name, an unusable file, or a context that is longer than
    the model was trained for (llama.cpp would cap it with nothing but a line in its log).
    """
    name = wish or catalog.defaults.model
    if names_a_file(name):
        return _local(facts.local_model, name, context, catalog.defaults.context_ceiling)
    known = catalog.models.get(name)
    if known is None:
        raise PlanRefused(
            f"no model named {name!r}",
            f"{did_you_mean(name, catalog.models)}`zluda-stack models list` shows all. The path of "
            "a GGUF file works too, with a slash in it or .gguf at its end.",
        )
    return ModelPlan(
        name=known.name,
        catalogued=known,
        path=None,
        context=_context(name, context, known.context_length, catalog.defaults.context_ceiling),
        trained_context=known.context_length,
    )


def _local(
    header: LocalModelFacts | None, name: str, context: int | None, ceiling: int
) -> ModelPlan:
    if header is None:
        raise PlanRefused(
            f"nothing is known of the file {name}",
            "Replayed host facts hold only the file that was named when they were captured.",
        )
    if header.problem is not None:
        raise PlanRefused(f"{header.path}: {header.problem}", "Give the path of a whole GGUF file.")
    trained = header.context_length
    return ModelPlan(
        name=_served_name(Path(header.path).stem),
        catalogued=None,
        path=header.path,
        context=_context(name, context, trained, ceiling),
        trained_context=trained,
    )


def _served_name(stem: str) -> str:
    """The file's name as clients can use it in a request: lower case, no blanks."""
    return "-".join(stem.lower().split()) or "local"


def _context(name: str, wish: int | None, trained: int | None, ceiling: int) -> int:
    if wish is None:
        return min(trained or ceiling, ceiling)
    if trained is not None and wish > trained:
        raise PlanRefused(
            f"context {wish} is longer than {name} was trained for ({trained} tokens)",
            f"Ask for at most {trained}, or choose a model that was trained for more.",
        )
    return wish
