"""Hardware: is there a card, and can the profile serve it."""

from __future__ import annotations

from zluda_stack.catalog.schema import Gpu
from zluda_stack.doctor.commands import USE_CPU
from zluda_stack.doctor.subject import INTEL, NVIDIA, Subject, display_label
from zluda_stack.doctor.types import Check, Fix, Verdict, fail, ok, warn
from zluda_stack.plan.gpu_card import Card
from zluda_stack.plan.gpu_target import native_way, override_way, serves, unsupported
from zluda_stack.plan.profiles import traits

_USE_NATIVE = Fix(
    command="zluda-stack up --profile native",
    then="It builds llama.cpp with HIP for the card; nobody has tried it there.",
)
_WAY_OF_OTHERS = {
    NVIDIA: "llama.cpp's own CUDA build needs no ZLUDA",
    INTEL: "llama.cpp's SYCL or Vulkan build serves it",
}


def _unwanted(subject: Subject) -> Verdict:
    if subject.no_gpu_wanted:
        wish = "engine embedded" if subject.settings.engine == "embedded" else "gpu none"
        return ok(f"no GPU is wanted ({wish})", rest="no GPU is wanted")
    return ok()


def _wsl2(subject: Subject) -> Verdict:
    facts = subject.facts
    if not facts.wsl or facts.kfd is not None:
        return ok()
    evidence = "this is WSL2: " + (
        "/dev/dxg is there, /dev/kfd is not" if facts.dxg else "it has no /dev/kfd"
    )
    reason = (
        "WSL2 hands GPUs over as /dev/dxg, and this version needs the amdgpu driver's /dev/kfd. "
        "AMD's own way there (ROCm with librocdxg) is unproven with ZLUDA"
    )
    if subject.gpu_named:
        return fail(evidence, reason, USE_CPU)
    return warn(evidence, reason, USE_CPU, rest="WSL2 has no amdgpu driver")


def _asked_gpu_missing(subject: Subject) -> Verdict:
    notice = subject.unmet("gpu-not-here")
    if notice is None or (subject.amd_is_here and not subject.facts.gpus):
        return ok()
    return fail(
        notice.message,
        "images for it can be rendered and built here, and run where the card is",
        Fix(command="zluda-stack up --gpu auto", then="It takes what is here, or the CPU."),
    )


def _no_amd_gpu(subject: Subject) -> Verdict:
    if subject.amd_is_here:
        return ok()
    others = _others(subject)
    evidence = "no AMD GPU: `zluda-stack up` computes on the CPU"
    return ok("; ".join((evidence, *others)), rest="there is no AMD GPU")


def _others(subject: Subject) -> list[str]:
    return [
        f"for the {display_label(each)}, {_WAY_OF_OTHERS[each.vendor]}"
        for each in subject.facts.pci_displays
        if each.vendor in _WAY_OF_OTHERS
    ]


def _nvidia_beside_amd(subject: Subject) -> Verdict:
    nvidia = [each for each in subject.facts.pci_displays if each.vendor == NVIDIA]
    if not nvidia:
        return ok()
    return ok(f"{display_label(nvidia[0])} is beside it and stays out of the containers")


def _unsupported_card(subject: Subject) -> Verdict:
    unserved = _known(subject, served=False)
    if subject.usable or not unserved:
        return ok()
    card, known = unserved[0]
    profile = subject.settings.profile
    reason = f"{unsupported(known, profile)}. {native_way(known)}"
    who = traits(profile).subject
    rest = _rest(subject, f"{who} cannot use the card")
    fix = _USE_NATIVE if serves("native", known) else USE_CPU
    return warn(f"{card.label} is no card for {who}", reason, fix, rest=rest)


def _no_kernels(subject: Subject) -> Verdict:
    bare = _known(subject, served=True)
    if subject.usable or not bare:
        return ok()
    card, known = bare[0]
    reason = (
        "the first matrix product would fail, and nobody has reported a target whose kernels do. "
        f"{override_way(known, subject.catalog)}"
    )
    rest = _rest(subject, "rocBLAS has no kernels for the card")
    return warn(f"rocBLAS has no kernels for {card.label}", reason, USE_CPU, rest=rest)


def _known(subject: Subject, *, served: bool) -> list[tuple[Card, Gpu]]:
    """The cards whose target the profile serves, or does not, with their targets."""
    profile = subject.settings.profile
    known = ((card, card.known) for card in subject.cards)
    return [
        (card, gpu) for card, gpu in known if gpu is not None and serves(profile, gpu) is served
    ]


def _rest(subject: Subject, reason: str) -> str:
    """`reason` settles the chain, unless a card that is not in the topology may be what matters."""
    return "" if subject.outside_kfd else reason


def _unknown_target(subject: Subject) -> Verdict:
    unknown = [card for card in subject.cards if card.facts.gfx_target and card.known is None]
    if subject.usable or not unknown:
        return ok()
    return warn(
        f"{unknown[0].label} is not in the catalogue",
        "nobody has told this project whether ZLUDA serves this gfx target",
        Fix(
            command="zluda-stack doctor --capture host.json",
            then="Attach host.json to a report; until then `zluda-stack up` computes on the CPU.",
        ),
        rest=_rest(subject, "the card is unknown"),
    )


def _choice(subject: Subject) -> Verdict:
    chosen = subject.chosen
    if chosen is None:
        return ok()
    skipped = subject.plan.skipped if subject.plan is not None else ()
    others = (each for each in skipped if each.index is not None)
    passed_over = "".join(f"; not {each.gpu}: {each.reason}" for each in others)
    return ok(f"{chosen.label}{passed_over}")


CHECKS = (
    Check(id="hardware.unwanted", look=_unwanted),
    Check(id="hardware.wsl2", look=_wsl2),
    Check(id="hardware.asked-gpu-missing", look=_asked_gpu_missing),
    Check(id="hardware.no-amd-gpu", look=_no_amd_gpu),
    Check(id="hardware.unsupported-card", look=_unsupported_card),
    Check(id="hardware.no-kernels", look=_no_kernels),
    Check(id="hardware.unknown-target", look=_unknown_target),
    Check(id="hardware.choice", look=_choice),
    Check(id="hardware.nvidia-beside-amd", look=_nvidia_beside_amd),
)
