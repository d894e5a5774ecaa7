"""The renderings that are committed: what the defaults give, the same on every machine."""

from __future__ import annotations

from zluda_stack.catalog.schema import Catalog
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.resolve import resolve
from zluda_stack.render.project import dockerfile, render_project
from zluda_stack.settings import Configured, Settings


def render_committed(catalog: Catalog) -> dict[str, str]:
    """The files of the repository for the defaults: path -> text, without any host's .env.

    The plan behind them is for no host at all; the target that it needs is in none of them.
    """
    target = catalog.combinations[catalog.defaults.combination].targets[0]
    nowhere = HostFacts(system="Linux", machine="x86_64", kernel="", cpu_count=1)
    plan = resolve(nowhere, Configured(settings=Settings(gpu=target)), catalog)
    kept = {"compose/inference.yml", *map(dockerfile, plan.images)}
    return {path: text for path, text in render_project(plan).items() if path in kept}
