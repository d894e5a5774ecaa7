"""compose/host-env.sh: what finds a host's values where this program is not installed."""

from __future__ import annotations

from zluda_stack.catalog.schema import Catalog, ZludaSupport
from zluda_stack.render.templates import render_template


def render_host_env(catalog: Catalog) -> str:
    """The POSIX shell script, with the gfx targets of `catalog` that ZLUDA supports."""
    supported = [gpu for gpu in catalog.gpus.values() if gpu.zluda is ZludaSupport.YES]
    return render_template("_compose/host-env.sh.j2", gpus=supported)
