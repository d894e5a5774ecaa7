"""compose/host-env.sh: what finds a host's values where this program is not installed."""

from __future__ import annotations

from typing import get_args

from zluda_stack.catalog.schema import Catalog, Gpu
from zluda_stack.plan.gpu_target import lacks_kernels, serves
from zluda_stack.plan.profiles import traits
from zluda_stack.render.templates import render_template
from zluda_stack.settings import Profile

_PROFILES: tuple[Profile, ...] = get_args(Profile)


def render_host_env(catalog: Catalog) -> str:
    """The POSIX shell script, with the gfx targets of `catalog` that each profile serves."""
    gpus = catalog.gpus.values()
    served = [(profile, gpu) for profile in _PROFILES for gpu in gpus if serves(profile, gpu)]
    kernels = {gpu.target: _kernels(gpu) for gpu in gpus}
    profiles = {profile: traits(profile) for profile in _PROFILES}
    return render_template(
        "_compose/host-env.sh.j2", served=served, kernels=kernels, profiles=profiles
    )


def _kernels(gpu: Gpu) -> str:
    """Whose rocBLAS kernels are taken, and the override that goes with those of another target."""
    if lacks_kernels(gpu):
        return "none"
    fallback = gpu.kernel_fallback
    return gpu.target if fallback is None else f"{fallback.target} {fallback.hsa_override}"
