"""Without network: what is served must be here, and nothing is asked of anyone else."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from zluda_stack.catalog.schema import Catalog
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.containers import FETCHER
from zluda_stack.plan.types import ModelPlan, Notice, Service
from zluda_stack.settings import Settings

BRINGS = "`zluda-stack bundle load FILE` brings what `zluda-stack bundle save` wrote elsewhere."
_PACKAGES = "embedded-packages"


def offered(facts: HostFacts, settings: Settings, catalog: Catalog) -> Catalog:
    """`catalog` with the models that can be chosen: offline, unless one is named, those here.

    The default is always among them, for it is what others are chosen before.
    """
    if not settings.offline or settings.model is not None:
        return catalog
    can = {*facts.models_ready, catalog.defaults.model}
    models = {name: model for name, model in catalog.models.items() if name in can}
    return structs.replace(catalog, models=models)


def model_needs(
    facts: HostFacts, settings: Settings, models: Iterable[ModelPlan]
) -> tuple[Notice, ...]:
    """Offline, that one of the models is not here; else nothing."""
    wanted = dict.fromkeys(model.name for model in models if model.path is None)
    missing = [name for name in wanted if name not in facts.models_ready]
    if not settings.offline or not missing:
        return ()
    others = ", ".join(facts.models_ready)
    also = f" Here are: {others} (--model NAME)." if others else ""
    return (
        Notice(
            code="offline-model",
            message=f"the model {missing[0]} is not here, and offline nothing is fetched",
            hint=BRINGS + also,
        ),
    )


def with_offline_hints(settings: Settings, unmet: Iterable[Notice]) -> tuple[Notice, ...]:
    """`unmet`, with what to bring in the place of what to download."""
    if not settings.offline:
        return tuple(unmet)
    hint = "The wheels of a bundle bring them; its README.txt has the command."
    return tuple(
        structs.replace(notice, hint=hint) if notice.code == _PACKAGES else notice
        for notice in unmet
    )


def fetching_nothing(services: Iterable[Service]) -> tuple[Service, ...]:
    """`services`, of which the fetcher takes what the stack was given, and asks no one."""
    return tuple(_closed(one) if one.name == FETCHER else one for one in services)


def _closed(fetcher: Service) -> Service:
    environment = fetcher.environment | {"ZLUDA_STACK_OFFLINE": "true"}
    return structs.replace(fetcher, environment=environment)
