"""Which device computes: the GPU that was asked for or is there, or the CPU, said openly."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from zluda_stack.catalog.nearest import find_gpu, suggest_gpu
from zluda_stack.catalog.schema import Catalog, Gpu, NativePath, ZludaSupport
from zluda_stack.errors import PlanRefused
from zluda_stack.host.facts import GpuFacts, HostFacts
from zluda_stack.plan.types import GpuDevice, Notice, SkippedGpu
from zluda_stack.settings import Configured

CPU_WAY = "To run on the CPU instead: zluda-stack up --engine embedded"
_AMD_VENDOR = 0x1002
_OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
_OVERRIDE_FORM = re.compile(r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{1,2}")
_GFX_NAME = re.compile(r"gfx([0-9]{1,2})([0-9a-f])([0-9a-f])")
_VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


class Choice(Struct, frozen=True, kw_only=True):
    """The chosen GPU (None: the CPU), why, what was passed over, and what this host lacks."""

    gpu: GpuDevice | None
    because: str
    skipped: tuple[SkippedGpu, ...] = ()
    warnings: tuple[Notice, ...] = ()
    unmet: tuple[Notice, ...] = ()


def choose_gpu(facts: HostFacts, configured: Configured, catalog: Catalog) -> Choice:
    """The device for these settings on this host.

    Raises PlanRefused for a target that is unknown or that ZLUDA cannot serve, for a GPU that
    contradicts the embedded engine, and for a card that is there but cannot be reached.
    """
    wish = configured.settings.gpu.strip().lower()
    override = _override(facts, configured)
    if configured.settings.engine == "embedded":
        return _embedded(wish, configured)
    if wish == "none":
        return Choice(gpu=None, because="no GPU was asked for (gpu is none)")
    if wish == "auto":
        return _automatic(facts, catalog, override)
    return _named(facts, catalog, supported_target(catalog, wish), override)


def supported_target(catalog: Catalog, text: str) -> Gpu:
    """The catalogue's GPU for a gfx target or a product's whole name, such as "rx 7900 xtx".

    Raises PlanRefused with the nearest names, or with the native way for a card without ZLUDA.
    """
    gpu = find_gpu(catalog, text)
    if gpu is None:
        nearest = suggest_gpu(catalog, text)
        names = "; ".join(f"{near.target} ({', '.join(near.products[:2])})" for near in nearest)
        hint = f"Nearest: {names}. " if names else ""
        raise PlanRefused(f"{text!r} is no known gfx target or card", hint + _supported(catalog))
    if gpu.zluda is not ZludaSupport.YES:
        raise PlanRefused(_unsupported(gpu), f"{_native_way(gpu)} {_supported(catalog)}")
    return gpu


def _supported(catalog: Catalog) -> str:
    targets = [gpu.target for gpu in catalog.gpus.values() if gpu.zluda is ZludaSupport.YES]
    return f"ZLUDA supports {', '.join(targets)}."


def _unsupported(gpu: Gpu) -> str:
    reason = f"it is wave{gpu.wavefront}, and ZLUDA needs wave32" if gpu.wavefront != 32 else ""
    return f"ZLUDA does not support {gpu.target} ({', '.join(gpu.products[:3])})" + (
        f": {reason}" if reason else ""
    )


def _native_way(gpu: Gpu) -> str:
    if gpu.native is NativePath.ROCM:
        return (
            "This card has a native way without translation: the native profile, llama.cpp built "
            "with HIP for ROCm (not part of this version)."
        )
    if gpu.native is NativePath.VULKAN:
        return "No ROCm kernels are left for this card: use llama.cpp's own Vulkan build."
    return "There is no known way to compute on this card."


def _embedded(wish: str, configured: Configured) -> Choice:
    if wish not in ("auto", "none"):
        raise PlanRefused(
            f"the embedded engine runs on the CPU, but gpu is {wish} ({configured.origin('gpu')})",
            "Leave --engine out to use the GPU, or leave --gpu out to use the CPU.",
        )
    return Choice(gpu=None, because="the embedded engine was asked for")


def _automatic(facts: HostFacts, catalog: Catalog, override: str | None) -> Choice:
    usable, skipped = _sort_out(facts.gpus, catalog)
    if usable:
        best = max(usable, key=lambda gpu: _rank(gpu, catalog))
        skipped += tuple(
            SkippedGpu(gpu=_label(gpu), reason=_why_not_best(gpu, best, catalog))
            for gpu in usable
            if gpu is not best
        )
        _refuse_unreachable(facts, best)
        return _present(facts, catalog, best, override, skipped)
    _refuse_hidden_card(facts)
    return Choice(gpu=None, because=_why_no_gpu(facts, skipped), skipped=skipped)


def _sort_out(
    gpus: Iterable[GpuFacts], catalog: Catalog
) -> tuple[tuple[GpuFacts, ...], tuple[SkippedGpu, ...]]:
    usable: list[GpuFacts] = []
    skipped: list[SkippedGpu] = []
    for gpu in gpus:
        reason = _why_unusable(gpu, catalog)
        if reason is None:
            usable.append(gpu)
        else:
            skipped.append(SkippedGpu(gpu=_label(gpu), reason=reason))
    return tuple(usable), tuple(skipped)


def _why_unusable(gpu: GpuFacts, catalog: Catalog) -> str | None:
    if gpu.gfx_target is None:
        return "this kernel does not tell its gfx target"
    known = catalog.gpus.get(gpu.gfx_target)
    if known is None:
        return f"{gpu.gfx_target} is not in the catalogue"
    return None if known.zluda is ZludaSupport.YES else _unsupported(known)


def _rank(gpu: GpuFacts, catalog: Catalog) -> tuple[bool, int, int]:
    """Discrete before integrated, then most memory, then the kernel's order."""
    return (not _integrated(gpu, catalog), gpu.vram_bytes or 0, -gpu.kfd_node)


def _integrated(gpu: GpuFacts, catalog: Catalog) -> bool:
    if gpu.integrated is not None:
        return gpu.integrated
    known = catalog.gpus.get(gpu.gfx_target or "")
    return known is not None and known.integrated


def _why_not_best(gpu: GpuFacts, best: GpuFacts, catalog: Catalog) -> str:
    if _integrated(gpu, catalog) and not _integrated(best, catalog):
        return f"integrated; the discrete {_label(best)} is preferred"
    return f"{_label(best)} comes first (more memory, or earlier in the topology)"


def _refuse_unreachable(facts: HostFacts, gpu: GpuFacts) -> None:
    """A Radeon card that is there must not turn into a CPU run in silence (case C12)."""
    if facts.kfd is None:
        missing = "/dev/kfd is missing"
    elif not facts.dri_exists:
        missing = "/dev/kfd is there, but /dev/dri is not"
    elif gpu.render_node is None:
        missing = "its render node under /dev/dri is missing"
    else:
        return
    raise PlanRefused(f"{_label(gpu)} cannot be used: {missing}", _reach_hint())


def _refuse_hidden_card(facts: HostFacts) -> None:
    if facts.kfd is not None and not facts.dri_exists:
        raise PlanRefused(
            "/dev/kfd is there, but /dev/dri is not: a GPU was meant to be reachable here",
            _reach_hint(),
        )
    amd = [node.path for node in facts.render_nodes if node.vendor == _AMD_VENDOR]
    if amd and facts.kfd is None:
        raise PlanRefused(
            f"an AMD card is there ({', '.join(amd)}), but /dev/kfd is not", _reach_hint()
        )


def _reach_hint() -> str:
    return (
        "Load the amdgpu kernel driver; inside a container, pass /dev/kfd and the render node "
        f"through. {CPU_WAY}"
    )


def _why_no_gpu(facts: HostFacts, skipped: tuple[SkippedGpu, ...]) -> str:
    if skipped:
        return "; ".join(f"{entry.gpu} is not usable: {entry.reason}" for entry in skipped)
    if facts.wsl and facts.kfd is None:
        return "this is WSL2, which has no /dev/kfd"
    if facts.kfd is None:
        return "this machine has no /dev/kfd"
    return "the KFD topology lists no GPU"


def _named(facts: HostFacts, catalog: Catalog, target: Gpu, override: str | None) -> Choice:
    here = [gpu for gpu in facts.gpus if gpu.gfx_target == target.target]
    if not here:
        there = ", ".join(_label(gpu) for gpu in facts.gpus) or "no AMD GPU"
        if facts.wsl and facts.kfd is None:
            there += "; this is WSL2, which has no /dev/kfd"
        return Choice(
            gpu=_device(facts, target, None, override),
            because=f"{target.target} was asked for",
            warnings=_target_warnings(facts, target, override),
            unmet=(
                Notice(
                    code="gpu-not-here",
                    message=f"{target.target} was asked for, but this machine has {there}",
                    hint=f"Render or build here, and run where the card is. {CPU_WAY}",
                ),
            ),
        )
    best = max(here, key=lambda gpu: _rank(gpu, catalog))
    _refuse_unreachable(facts, best)
    skipped = tuple(
        SkippedGpu(gpu=_label(gpu), reason=f"{target.target} was asked for")
        for gpu in facts.gpus
        if gpu is not best
    )
    return _present(facts, catalog, best, override, skipped)


def _present(
    facts: HostFacts,
    catalog: Catalog,
    gpu: GpuFacts,
    override: str | None,
    skipped: tuple[SkippedGpu, ...],
) -> Choice:
    target = catalog.gpus[gpu.gfx_target or ""]
    return Choice(
        gpu=_device(facts, target, gpu, override),
        because=f"{_label(gpu)} is here and ZLUDA supports it",
        skipped=skipped,
        warnings=_target_warnings(facts, target, override),
    )


def _device(facts: HostFacts, target: Gpu, gpu: GpuFacts | None, override: str | None) -> GpuDevice:
    fallback = target.kernel_fallback
    render_node = gpu.render_node if gpu else None
    gids = {node.path: node.gid for node in facts.render_nodes}
    return GpuDevice(
        target=target.target,
        name=gpu.name if gpu else None,
        evidence=target.provenance.evidence,
        pci=gpu.pci if gpu else None,
        render_node=render_node,
        render_gid=gids.get(render_node) if render_node else None,
        kfd_gid=facts.kfd.gid if gpu and facts.kfd else None,
        vram_bytes=gpu.vram_bytes if gpu else None,
        hsa_override=override or (fallback.hsa_override if fallback else None),
        kernel_target=fallback.target if fallback else None,
    )


def _target_warnings(facts: HostFacts, target: Gpu, override: str | None) -> tuple[Notice, ...]:
    notices = [_kernel_notice(target, override)]
    if override is not None:
        notices.append(
            Notice(
                code="hsa-override",
                message=f"{_OVERRIDE}={override} makes the card pass for another target",
                hint="It can miscompile; leave it out unless you know that the card needs it.",
            )
        )
    given = [name for name in _VISIBLE if facts.environment.get(name)]
    if given:
        notices.append(
            Notice(
                code="visible-devices",
                message=f"{' and '.join(given)} of your environment are not passed on",
                hint="Only the chosen card's render node enters the container; choose by --gpu.",
            )
        )
    return tuple(notice for notice in notices if notice is not None)


def _kernel_notice(target: Gpu, override: str | None) -> Notice | None:
    if target.rocblas_kernels is not False or override is not None:
        return None
    fallback = target.kernel_fallback
    if fallback is None:
        return Notice(
            code="no-rocblas-kernels",
            message=f"rocBLAS has no kernels for {target.target}",
            hint="Matrix products may fail on this target; no one has reported a way round.",
        )
    return Notice(
        code="kernel-fallback",
        message=(
            f"rocBLAS has no kernels for {target.target}: those of {fallback.target} are used, "
            f"with {_OVERRIDE}={fallback.hsa_override}"
        ),
        hint=f"Evidence: {fallback.evidence.value}. Set hsa_override to choose otherwise.",
    )


def _override(facts: HostFacts, configured: Configured) -> str | None:
    """The user's override version; None for none or empty, which must never be passed on."""
    setting = configured.settings.hsa_override
    value = setting if setting is not None else facts.environment.get(_OVERRIDE, "")
    value = value.strip()
    if value and not _OVERRIDE_FORM.fullmatch(value):
        where = configured.origin("hsa_override") if setting is not None else "environment"
        raise PlanRefused(
            f"{_OVERRIDE}={value} ({where}) has the wrong form",
            f"The form is 11.0.0 (major.minor.stepping){_as_version(value)}. Most cards need "
            "none: leave it out, or unset it.",
        )
    return value or None


def _as_version(text: str) -> str:
    """What a gfx target would be in that form, as the end of a sentence; else nothing."""
    parts = _GFX_NAME.fullmatch(text.lower())
    if parts is None:
        return ""
    return f"; {text} would be {int(parts[1])}.{int(parts[2], 16)}.{int(parts[3], 16)}"


def _label(gpu: GpuFacts) -> str:
    name = gpu.name or gpu.gfx_target or "a GPU of unknown target"
    target = f" ({gpu.gfx_target})" if gpu.name and gpu.gfx_target else ""
    return f"{name}{target}" + (f" at {gpu.pci}" if gpu.pci else "")


def describe(device: GpuDevice) -> str:
    """The chosen GPU in a few words, for a headline."""
    return f"{device.name or device.target}" + (f" at {device.pci}" if device.pci else "")
