"""The renderings that are committed: what the defaults give, the same on every machine."""

from __future__ import annotations

from zluda_stack.catalog.schema import Catalog
from zluda_stack.plan.reference import cpu_plan, gpu_plans
from zluda_stack.plan.selftest import selftest_image, selftest_path
from zluda_stack.plan.toolbox import for_every_host
from zluda_stack.plan.types import Plan
from zluda_stack.render.compose import compose_path
from zluda_stack.render.dockerfiles import render_dockerfile
from zluda_stack.render.fit_table import PATH as FIT_TABLE
from zluda_stack.render.fit_table import render_fit_table
from zluda_stack.render.host_env import render_host_env
from zluda_stack.render.project import dockerfile, render_project
from zluda_stack.render.toolbox import COMPOSE as TOOLBOX
from zluda_stack.render.toolbox import render_toolbox
from zluda_stack.settings import Settings


def render_committed(catalog: Catalog) -> dict[str, str]:
    """The files of the repository for the defaults: path -> text, without any host's .env.

    The plans behind them are for no host at all; the gfx target that one needs is in no file.
    """
    gpu = gpu_plans(catalog, Settings())[0]
    native = gpu_plans(catalog, Settings(profile="native"))[0]
    with_page = Settings(profile="webui")
    webui = (gpu_plans(catalog, with_page)[0], cpu_plan(catalog, with_page))
    selftest = selftest_image(gpu)
    committed = {
        "compose/host-env.sh": render_host_env(catalog),
        dockerfile(selftest): render_dockerfile(selftest),
        FIT_TABLE: render_fit_table(catalog),
    }
    for plan in (cpu_plan(catalog, Settings()), gpu, native, *webui):
        rendered = render_project(plan)
        committed |= {path: rendered[path] for path in sorted(_of_no_host(plan))}
    toolbox = for_every_host(catalog, Settings())
    kept = {TOOLBOX, *map(dockerfile, toolbox.images)}
    rendered = render_toolbox(toolbox)
    return committed | {path: rendered[path] for path in sorted(kept)}


def _of_no_host(plan: Plan) -> set[str]:
    """The rendered files of `plan` that are the same for every host, and no copies."""
    selftest = selftest_path(plan)
    files = {compose_path(plan), *map(dockerfile, plan.images)}
    return files if selftest is None else files | {selftest}
