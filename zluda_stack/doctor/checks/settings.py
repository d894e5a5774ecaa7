"""Settings: the GPU variables of the environment, and what the plan refuses or lacks."""

from __future__ import annotations

from zluda_stack.doctor.commands import USE_CPU
from zluda_stack.doctor.subject import Subject
from zluda_stack.doctor.types import Check, Fix, Verdict, fail, ok, warn
from zluda_stack.errors import ExitCode, PlanRefused
from zluda_stack.plan.gpu_override import OVERRIDE, given_override, valid_override

_SELECTORS = (
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)
# The plan's needs that a check of their own tells in more detail.
TOLD_ELSEWHERE = frozenset(
    {
        *("wsl", "gpu-not-here", "unmapped-group", "group-shut-out"),
        *("docker", "embedded-packages", "docker-desktop", "docker-remote", "rootless-docker"),
        "podman-access",
        *("passthrough-cdi", "passthrough-runtime", "terms", "port-taken", "model-too-large"),
    }
)


def _override_form(subject: Subject) -> Verdict:
    try:
        valid_override(subject.facts, subject.configured)
    except PlanRefused as refused:
        return fail(refused.message, refused.hint, _without_override(subject))
    return ok()


def _override_target(subject: Subject) -> Verdict:
    override, refusal = given_override(subject.facts, subject.configured), subject.refusal
    if override is None or refusal is None or not refusal.message.startswith(str(override)):
        return ok()
    return fail(refusal.message, refusal.hint, _without_override(subject))


def _override_empty(subject: Subject) -> Verdict:
    value = subject.facts.environment.get(OVERRIDE)
    if value is None or value.strip():
        return ok()
    return warn(
        f"{OVERRIDE} is set and empty",
        "it is not passed on; any other ROCm program finds no GPU with it",
        Fix(command=f"unset {OVERRIDE}", then="Take it out of your shell's start files too."),
    )


def _override_set(subject: Subject) -> Verdict:
    override = given_override(subject.facts, subject.configured)
    if override is None or subject.no_gpu_wanted or not subject.facts.gpus:
        return ok()
    return warn(
        str(override),
        "it makes the card pass for another: wrong results and memory faults are reported with it",
        _without_override(subject),
    )


def _without_override(subject: Subject) -> Fix:
    if subject.settings.hsa_override is None:
        return Fix(command=f"unset {OVERRIDE}", then="Take it out of your shell's start files too.")
    return Fix(command="zluda-stack config edit", then="Remove the line of hsa_override.")


def _visible_devices(subject: Subject) -> Verdict:
    given = [name for name in _SELECTORS if name in subject.facts.environment]
    if not given or not subject.facts.gpus:
        return ok()
    reason = "they are not passed on: only the chosen card's node enters the container"
    if len(given) > 1:
        reason += "; outside, each filters what the one before left"
    return warn(
        f"set in your environment: {', '.join(given)}",
        reason,
        Fix(command=f"unset {' '.join(given)}", then="Choose the card with --gpu."),
    )


def _refused(subject: Subject) -> Verdict:
    refusal = subject.refusal
    if refusal is None or subject.client_does_not_fit:
        return ok()
    named = subject.gpu_named
    return fail(
        refusal.message,
        refusal.hint,
        USE_CPU if named else Fix(command="zluda-stack config show"),
    )


def _unmet(subject: Subject) -> Verdict:
    unmet = subject.plan.unmet if subject.plan is not None else ()
    other = next((each for each in unmet if each.code not in TOLD_ELSEWHERE), None)
    if other is None:
        return ok()
    return fail(other.message, other.hint, Fix(command="zluda-stack plan"))


CHECKS = (
    Check(id="settings.override-form", look=_override_form, exit_code=ExitCode.REFUSED),
    Check(id="settings.override-target", look=_override_target, exit_code=ExitCode.REFUSED),
    Check(id="settings.override-empty", look=_override_empty),
    Check(id="settings.override-set", look=_override_set),
    Check(id="settings.visible-devices", look=_visible_devices),
    Check(id="settings.refused", look=_refused, exit_code=ExitCode.REFUSED),
    Check(id="settings.unmet", look=_unmet),
)
