"""compose/host-env.sh: what finds a host's values where this program is not installed."""

from __future__ import annotations

from zluda_stack.catalog.schema import Catalog, Gpu, ZludaSupport
from zluda_stack.plan.gpu_target import lacks_kernels
from zluda_stack.render.templates import render_template


def render_host_env(catalog: Catalog) -> str:
    """The POSIX shell script, with the gfx targets of `catalog` that ZLUDA supports."""
    supported = [gpu for gpu in catalog.gpus.values() if gpu.zluda is ZludaSupport.YES]
    kernels = {gpu.target: _kernels(gpu) for gpu in supported}
    return render_template("_compose/host-env.sh.j2", gpus=supported, kernels=kernels)


def _kernels(gpu: Gpu) -> str:
    """Whose rocBLAS kernels are taken, and the override that goes with those of another target."""
    if lacks_kernels(gpu):
        return "none"
    fallback = gpu.kernel_fallback
    return gpu.target if fallback is None else f"{fallback.target} {fallback.hsa_override}"
