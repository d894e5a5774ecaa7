"""Which pinned versions the images of a stack are made of, and which models those can serve."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from zluda_stack.catalog.nearest import did_you_mean
from zluda_stack.catalog.schema import Catalog, Combination, Component, Model, ModelServer
from zluda_stack.errors import PlanRefused, StackError
from zluda_stack.host.facts import LocalModelFacts
from zluda_stack.plan.profiles import traits
from zluda_stack.plan.types import ModelPlan, Plan
from zluda_stack.settings import Settings

LLAMA = "llama.cpp"
_AUTO = "auto"


def combination_of(catalog: Catalog, settings: Settings) -> Combination:
    """The versions for the settings `combination` (auto: the profile's own) and `profile`.

    Raises PlanRefused for an unknown name, and for one that is not for the profile.
    """
    if settings.combination == _AUTO:
        defaults, translates = catalog.defaults, traits(settings.profile).translates
        return catalog.combinations[defaults.combination if translates else defaults.native]
    fitting = _fitting(catalog, settings)
    chosen = catalog.combinations.get(settings.combination)
    listed = f"For the profile {settings.profile} there are: {', '.join(fitting)}."
    if chosen is None:
        raise PlanRefused(
            f"no combination is named {settings.combination!r}",
            did_you_mean(settings.combination, catalog.combinations) + listed,
        )
    if chosen.name not in fitting:
        raise PlanRefused(
            f"the combination {chosen.name} is not for the profile {settings.profile}", listed
        )
    return chosen


def each_combination(catalog: Catalog, settings: Settings) -> tuple[Settings, ...]:
    """`settings` for each combination that they can mean: the one they name, or any that fits."""
    if settings.combination != _AUTO:
        return (settings,)
    fitting = _fitting(catalog, settings)
    return tuple(structs.replace(settings, combination=name) for name in fitting)


def other_versions(catalog: Catalog, plan: Plan) -> str | None:
    """What to try where the card computes right and the model server of `plan` does not.

    None where its profile has no second combination, and on the CPU.
    """
    if plan.gpu is None or plan.combination is None:
        return None
    fitting = _fitting(catalog, Settings(profile=plan.profile))
    other = next((name for name in fitting if name != plan.combination), None)
    if other is None:
        return None
    return f"Other versions of it may do: `zluda-stack up --combination {other}`."


def components_of(catalog: Catalog, combination: Combination) -> dict[str, Component]:
    """What `combination` is made of, by what images call it."""
    components = (catalog.components[name] for name in combination.components)
    return {component.part or component.name: component for component in components}


def server_of(catalog: Catalog, combination: Combination) -> ModelServer:
    """How the model server of `combination` differs from those of others."""
    server = components_of(catalog, combination)[LLAMA].server
    if server is None:
        raise StackError(
            f"the catalogue does not say how the server of {combination.name} is started",
            "Write `server` under its llama.cpp in components.yml.",
        )
    return server


def offered(catalog: Catalog, settings: Settings) -> Catalog:
    """`catalog` with the models that the server can load, and those that `settings` names."""
    known = server_of(catalog, combination_of(catalog, settings)).architectures
    if known is None:
        return catalog
    named = (settings.model or "").split(",")
    models = {
        name: model
        for name, model in catalog.models.items()
        if name in named or _architecture(model) in (None, *known)
    }
    return structs.replace(catalog, models=models)


def require_loadable(
    catalog: Catalog,
    settings: Settings,
    models: Iterable[ModelPlan],
    local: LocalModelFacts | None,
) -> None:
    """Return when the server can load every one of `models`, as far as is known; else PlanRefused.

    `local` is the file of the user's among them.
    """
    for model in models:
        if model.catalogued is not None:
            architecture = _architecture(model.catalogued)
        else:
            architecture = local.architecture if local else None
        llama = unable(catalog, settings, architecture)
        if llama is not None:
            raise PlanRefused(
                f"{model.name} is of the architecture {architecture}, which {llama.title} cannot "
                "load",
                f"Choose another model, or other versions: --combination {_AUTO}. "
                f"`zluda-stack explain {llama.name}` lists what it loads.",
            )


def unable(catalog: Catalog, settings: Settings, architecture: str | None) -> Component | None:
    """The model server of `settings` where it cannot load models of `architecture`, else None."""
    combination = combination_of(catalog, settings)
    known = server_of(catalog, combination).architectures
    if known is None or architecture in (None, *known):
        return None
    return components_of(catalog, combination)[LLAMA]


def _fitting(catalog: Catalog, settings: Settings) -> tuple[str, ...]:
    """The combinations that are for the profile of `settings`."""
    translates = traits(settings.profile).translates
    return tuple(one.name for one in catalog.combinations.values() if one.translates == translates)


def _architecture(model: Model) -> str | None:
    """llama.cpp's name of what the model is; None where the catalogue does not know."""
    return None if model.shape is None else model.shape.architecture
