"""What the catalogue says of a gfx target: whether a profile serves it, and else what is left."""

from __future__ import annotations

from zluda_stack.catalog.schema import Catalog, Gpu, NativePath, ZludaSupport
from zluda_stack.plan.gpu_override import version_of
from zluda_stack.plan.profiles import PROFILES, traits
from zluda_stack.settings import Profile


def serves(profile: Profile, gpu: Gpu) -> bool:
    """True when what `profile` computes with supports this target."""
    if traits(profile).translates:
        return gpu.zluda is ZludaSupport.YES
    return gpu.native is NativePath.ROCM


def hindrance(gpu: Gpu, *, overridden: bool, profile: Profile = "translated") -> str | None:
    """Why cards of this target cannot be served, None when they can (cases C07, C27).

    With an override they pass for another target, and need no kernels for their own.
    """
    if not serves(profile, gpu):
        return unsupported(gpu, profile)
    if lacks_kernels(gpu) and not overridden:
        return f"rocBLAS has no kernels for {gpu.target}, and nobody has reported a way round"
    return None


def unsupported(gpu: Gpu, profile: Profile = "translated") -> str:
    """That `profile` does not serve this target, and why as far as that is known."""
    products = f"{gpu.target} ({', '.join(gpu.products[:3])})"
    known = traits(profile)
    if not known.translates:
        return f"{known.subject} does not serve {products}"
    if gpu.wavefront == 32:
        return f"ZLUDA does not support {products}"
    return f"ZLUDA does not support {products}: it is wave{gpu.wavefront}, and ZLUDA needs wave32"


def lacks_kernels(gpu: Gpu) -> bool:
    """True when rocBLAS has no kernels for it, and none of a sibling are known to serve."""
    return gpu.rocblas_kernels is False and gpu.kernel_fallback is None


def override_way(gpu: Gpu, catalog: Catalog) -> str:
    """How a target without kernels can be tried with those of another, as a sentence."""
    family = gpu.target[:-1]
    siblings = (
        f", such as {version_of(other.target)} for {other.target}"
        for other in catalog.gpus.values()
        if other.target.startswith(family) and other.rocblas_kernels is not False
    )
    example = next(siblings, "")
    return f"The setting hsa_override can name the target whose kernels to use{example}: unproven."


def native_way(gpu: Gpu) -> str:
    """What serves a target that ZLUDA does not, as a sentence."""
    if gpu.native is NativePath.ROCM:
        return (
            "This card has a native way without translation: the native profile (--profile "
            "native), llama.cpp built with HIP for ROCm. Nobody has tried it."
        )
    if gpu.native is NativePath.VULKAN:
        return "No ROCm kernels are left for this card: use llama.cpp's own Vulkan build."
    return "There is no known way to compute on this card."


def unserved(
    gpu: Gpu, catalog: Catalog, *, overridden: bool, profile: Profile = "translated"
) -> str | None:
    """Why cards of this target cannot be served, and what does, as sentences; None if they can."""
    problem = hindrance(gpu, overridden=overridden, profile=profile)
    if problem is None:
        return None
    if serves(profile, gpu):
        return f"{problem}. {override_way(gpu, catalog)}"
    others = [
        f"--profile {other}"
        for other in PROFILES
        if hindrance(gpu, overridden=overridden, profile=other) is None
    ]
    if others:
        return f"{problem}. What does: {' or '.join(others)}."
    return f"{problem}. No profile does. {native_way(gpu)}"


def supported(catalog: Catalog, profile: Profile = "translated") -> str:
    """The targets that `profile` serves, as a sentence."""
    every = catalog.gpus.values()
    served = (gpu for gpu in every if hindrance(gpu, overridden=False, profile=profile) is None)
    known = traits(profile)
    subject = known.subject[0].upper() + known.subject[1:]
    return f"{subject} {known.verb} {', '.join(gpu.target for gpu in served)}."
