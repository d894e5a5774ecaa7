"""The kernel: what its command line forbids, and what an old one does not tell."""

from __future__ import annotations

from zluda_stack.doctor.commands import distribution, without_kernel_option
from zluda_stack.doctor.subject import Subject
from zluda_stack.doctor.types import Check, Fix, Verdict, fail, ok, warn

_NO_MODESET = ("nomodeset", "amdgpu.modeset=0")
_BLACKLISTS = ("modprobe.blacklist", "module_blacklist", "rd.driver.blacklist")


def _nomodeset(subject: Subject) -> Verdict:
    given = next((each for each in subject.facts.kernel_options if each in _NO_MODESET), None)
    if given is None:
        return ok()
    evidence = f"the kernel was started with {given}"
    fix = without_kernel_option(subject, given)
    if subject.driver_works:
        return warn(
            evidence, "it keeps amdgpu from driving cards; this one works all the same", fix
        )
    return fail(evidence, "with it amdgpu drives no card, so no GPU and no /dev/kfd appear", fix)


def _blacklisted(subject: Subject) -> Verdict:
    given = next((each for each in subject.facts.kernel_options if _blacklists(each)), None)
    if given is None or subject.driver_works:
        return ok()
    return fail(
        f"the kernel was started with {given}",
        "it forbids the amdgpu driver",
        without_kernel_option(subject, given),
    )


def _blacklists(option: str) -> bool:
    name, _, modules = option.partition("=")
    return name in _BLACKLISTS and "amdgpu" in modules.split(",")


def _too_old(subject: Subject) -> Verdict:
    nameless = [card for card in subject.cards if card.facts.gfx_target is None]
    if not nameless:
        return ok(f"{subject.facts.system} {subject.facts.kernel}".strip())
    evidence = f"Linux {subject.facts.kernel} does not tell the gfx target of {nameless[0].label}"
    reason = (
        "gfx_target_version came into the KFD topology in the second half of 2021; ROCm 7 and this "
        "program read it there"
    )
    here = distribution(subject)
    fix = Fix(
        command=here.kernel, then="Start the newer kernel; kernels of 2022 and later tell it."
    )
    return warn(evidence, reason, fix) if subject.usable else fail(evidence, reason, fix)


CHECKS = (
    Check(id="kernel.nomodeset", look=_nomodeset),
    Check(id="kernel.blacklisted", look=_blacklisted),
    Check(id="kernel.too-old", look=_too_old),
)
