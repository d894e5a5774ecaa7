"""What is said of computing on a target: kernels, the override version, the user's variables."""

from __future__ import annotations

from zluda_stack.catalog.schema import Gpu
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.gpu_override import OVERRIDE, Override
from zluda_stack.plan.types import Notice

_VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def target_warnings(facts: HostFacts, target: Gpu, override: Override | None) -> tuple[Notice, ...]:
    """What the user must know of computing on `target`, with the user's `override` if any."""
    kernels = _kernel_notice(target) if override is None else _override_notice(override)
    notices = (kernels, _visible_notice(facts))
    return tuple(notice for notice in notices if notice is not None)


def _kernel_notice(target: Gpu) -> Notice | None:
    fallback = target.kernel_fallback
    if fallback is None:
        return None
    return Notice(
        code="kernel-fallback",
        message=(
            f"rocBLAS has no kernels for {target.target}: those of {fallback.target} are used, "
            f"with {OVERRIDE}={fallback.hsa_override}"
        ),
        hint=f"Evidence: {fallback.evidence.value}. Set hsa_override to choose otherwise.",
    )


def _override_notice(override: Override) -> Notice:
    return Notice(
        code="hsa-override",
        message=f"{override} makes the card pass for {override.target}, whose kernels are used",
        hint="It can miscompile; leave it out unless you know that the card needs it.",
    )


def _visible_notice(facts: HostFacts) -> Notice | None:
    """Together these variables filter twice, and a passed render node is filter enough (C04)."""
    given = [name for name in _VISIBLE if facts.environment.get(name)]
    if not given:
        return None
    return Notice(
        code="visible-devices",
        message=f"{' and '.join(given)} of your environment are not passed on",
        hint="Only the chosen card's render node enters the container; choose by --gpu.",
    )
