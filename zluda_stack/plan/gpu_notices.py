"""What is said of computing on a target: kernels, the override version, the user's variables."""

from __future__ import annotations

import re

from zluda_stack.catalog.schema import Gpu
from zluda_stack.errors import PlanRefused
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.types import Notice
from zluda_stack.settings import Configured

_OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
_OVERRIDE_FORM = re.compile(r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{1,2}")
_GFX_NAME = re.compile(r"gfx([0-9]{1,2})([0-9a-f])([0-9a-f])")
_VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def target_warnings(facts: HostFacts, target: Gpu, override: str | None) -> tuple[Notice, ...]:
    """What the user must know of computing on `target`, `override` being the version passed on."""
    notices = (_kernel_notice(target, override), _override_notice(override), _visible_notice(facts))
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


def _override_notice(override: str | None) -> Notice | None:
    if override is None:
        return None
    return Notice(
        code="hsa-override",
        message=f"{_OVERRIDE}={override} makes the card pass for another target",
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


def override_version(facts: HostFacts, configured: Configured) -> str | None:
    """The user's override; None for none or empty, which must never be passed on (C06).

    Raises PlanRefused for one of the wrong form (C05).
    """
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
