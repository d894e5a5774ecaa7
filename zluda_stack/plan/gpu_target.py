"""What the catalogue says of a gfx target: whether it is served, and else what is left for it."""

from __future__ import annotations

from zluda_stack.catalog.schema import Catalog, Gpu, NativePath, ZludaSupport
from zluda_stack.plan.gpu_override import version_of


def hindrance(gpu: Gpu, *, overridden: bool) -> str | None:
    """Why cards of this target cannot be served, None when they can (cases C07, C27).

    With an override they pass for another target, and need no kernels for their own.
    """
    if gpu.zluda is not ZludaSupport.YES:
        return unsupported(gpu)
    if lacks_kernels(gpu) and not overridden:
        return f"rocBLAS has no kernels for {gpu.target}, and nobody has reported a way round"
    return None


def unsupported(gpu: Gpu) -> str:
    """That ZLUDA does not serve this target, and why as far as that is known."""
    products = f"{gpu.target} ({', '.join(gpu.products[:3])})"
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
            "This card has a native way without translation: the native profile, llama.cpp built "
            "with HIP for ROCm (not part of this version)."
        )
    if gpu.native is NativePath.VULKAN:
        return "No ROCm kernels are left for this card: use llama.cpp's own Vulkan build."
    return "There is no known way to compute on this card."


def supported(catalog: Catalog) -> str:
    """The targets that are served, as a sentence."""
    served = (gpu for gpu in catalog.gpus.values() if hindrance(gpu, overridden=False) is None)
    return f"ZLUDA supports {', '.join(gpu.target for gpu in served)}."
