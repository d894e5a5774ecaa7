"""Whose rocBLAS kernels a card computes with, and the override that goes with them."""

from __future__ import annotations

from msgspec import Struct

from zluda_stack.catalog.schema import Catalog, Gpu
from zluda_stack.errors import PlanRefused
from zluda_stack.plan.gpu_override import WITHOUT, Override
from zluda_stack.plan.gpu_reach import CPU_WAY
from zluda_stack.plan.gpu_target import lacks_kernels, override_way, serves, unsupported
from zluda_stack.settings import Profile


class Kernels(Struct, frozen=True, kw_only=True):
    """`target` has the kernels, None for the card's own; `hsa_override` makes it pass for that."""

    target: str | None = None
    hsa_override: str | None = None


def choose_kernels(
    catalog: Catalog, gpu: Gpu, override: Override | None, profile: Profile
) -> Kernels:
    """The kernels for cards of the target `gpu`: those of the user's override before all others.

    With an override ROCm takes the card for another target, and asks for the kernels of that one.
    Raises PlanRefused when that one cannot be served.
    """
    if override is not None:
        _refuse_unserved(catalog, gpu, override, profile)
        own = override.target == gpu.target
        return Kernels(target=None if own else override.target, hsa_override=override.version)
    fallback = gpu.kernel_fallback
    if fallback is None:
        return Kernels()
    return Kernels(target=fallback.target, hsa_override=fallback.hsa_override)


def _refuse_unserved(catalog: Catalog, gpu: Gpu, override: Override, profile: Profile) -> None:
    known = catalog.gpus.get(override.target)
    if known is None:
        problem = f"{override.target} is not in the catalogue"
    elif not serves(profile, known):
        problem = unsupported(known, profile)
    elif known.rocblas_kernels is False:
        problem = f"rocBLAS has no kernels for {known.target}"
    else:
        return
    raise PlanRefused(
        f"{override} makes the card pass for {override.target}: {problem}",
        f"{override_way(gpu, catalog)} {CPU_WAY}" if lacks_kernels(gpu) else WITHOUT,
    )
