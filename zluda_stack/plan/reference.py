"""Plans for no host at all: what the catalogue gives by itself, the same on every machine."""

from __future__ import annotations

from msgspec import structs

from zluda_stack.catalog.schema import Catalog
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.combination import combination_of
from zluda_stack.plan.resolve import resolve
from zluda_stack.plan.types import Plan
from zluda_stack.settings import Configured, Settings

NOWHERE = HostFacts(system="Linux", machine="x86_64", kernel="", cpu_count=1)


def gpu_plans(catalog: Catalog, settings: Settings) -> tuple[Plan, ...]:
    """One plan for each gfx target of the combination, in its order.

    Of `settings`, those count that say what images are made of. Raises PlanRefused.
    """
    targets = combination_of(catalog, settings).targets
    return tuple(_plan(catalog, settings, gpu=target) for target in targets)


def cpu_plan(catalog: Catalog, settings: Settings) -> Plan:
    """The plan of a container stack without a GPU. Raises PlanRefused."""
    return _plan(catalog, settings, gpu="none")


def _plan(catalog: Catalog, settings: Settings, *, gpu: str) -> Plan:
    made_of = Settings(
        variant=settings.variant,
        base=settings.base,
        combination=settings.combination,
        zluda=settings.zluda,
        cuda_toolkit=settings.cuda_toolkit,
        accept_cuda_eula=settings.accept_cuda_eula,
        profile=settings.profile,
    )
    wished = structs.replace(made_of, engine="docker", gpu=gpu)
    return resolve(NOWHERE, Configured(settings=wished), catalog)
