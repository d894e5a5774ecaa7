"""The model: is it here, is there room for it, and does it fit into memory."""

from __future__ import annotations

import shlex

from zluda_stack.doctor.subject import Subject
from zluda_stack.doctor.types import Check, Fix, Verdict, fail, ok, skip, warn
from zluda_stack.plan.download import space_of
from zluda_stack.plan.model_on_cpu import TOO_LARGE
from zluda_stack.plan.model_words import MEMORY, PARTLY_ON_CARD
from zluda_stack.plan.types import ModelPlan
from zluda_stack.units import megabytes

_FREE_STORE = Fix(
    command="zluda-stack models list", then="`zluda-stack models rm NAME` frees space."
)
_FREE_DOCKER = Fix(
    command="docker system df", then="Remove what you do not need, or take a smaller model."
)


def space_to_fetch(subject: Subject) -> int:
    """The bytes that fetching the planned models takes for a while; 0 when here or a file."""
    plan, stack = subject.plan, subject.facts.stack
    here = stack is not None and (stack.model_ready or stack.state == "running")
    return 0 if plan is None or here else sum(map(space_of, plan.catalogued))


def _size(subject: Subject) -> int | None:
    """The size of the planned model's file in bytes."""
    plan, local = subject.plan, subject.facts.local_model
    if plan is None:
        return None
    if plan.model.catalogued is not None:
        return plan.model.catalogued.size
    return local.size if local is not None and local.path == plan.model.path else None


def _no_room(subject: Subject) -> Verdict:
    plan, size = subject.plan, space_to_fetch(subject)
    if plan is None:
        return ok()
    free, where, fix = subject.facts.models_free_bytes, "its folder", _FREE_STORE
    if plan.engine == "docker":
        free, where, fix = subject.facts.docker.free_bytes, "Docker's disk", _FREE_DOCKER
    if free is None or free >= size:
        return ok()
    return fail(
        f"fetching the model takes {megabytes(size)} for a while, {where} has "
        f"{megabytes(free)} free",
        "the download would stop in its middle",
        fix,
    )


def _missing(subject: Subject) -> Verdict:
    plan, stack = subject.plan, subject.facts.stack
    if plan is None or stack is None:
        return skip("the store was not looked at")
    if plan.model.path is not None:
        return ok(f"{plan.model.name} (a file of yours)")
    if stack.model_ready is None:
        return ok(f"{' and '.join(plan.served)}; a container fetches into a volume")
    if stack.model_ready:
        return ok(plan.model.name)
    return _not_whole(plan.model)


def _not_whole(model: ModelPlan) -> Verdict:
    return warn(
        f"the model {model.name} is not in the store, or not whole",
        "`zluda-stack up` fetches it first and checks its hash",
        Fix(command=f"zluda-stack models pull {shlex.quote(model.name)}", safe=True),
    )


def _too_large(subject: Subject) -> Verdict:
    plan, size, (have, what) = subject.plan, _size(subject), _memory(subject)
    other = Fix(command="zluda-stack models list", then="Take a smaller model, or more quantised.")
    too_large = subject.unmet(TOO_LARGE)
    if too_large is not None:
        return fail(too_large.message, "the server would be ended, or swap without end", other)
    for warning in () if plan is None else plan.warnings:
        if warning.code == PARTLY_ON_CARD:
            return warn(warning.message, "every answer waits for the CPU", other)
    fitted = plan is not None and any(each.what == MEMORY for each in plan.decisions)
    if fitted or size is None or have is None or size <= have:
        return ok()
    return warn(
        f"the model's file is {megabytes(size)}, {what} {megabytes(have)}",
        "what does not fit is computed on the CPU or read from disk again and again: very slow",
        other,
    )


def _memory(subject: Subject) -> tuple[int | None, str]:
    """What the model is loaded into, in bytes, and what to call it."""
    gpu = subject.plan.gpu if subject.plan is not None else None
    if gpu is None:
        return subject.facts.memory_bytes, "this machine's memory"
    return gpu.memory_bytes, "the card's memory"


CHECKS = (
    Check(id="model.no-room", look=_no_room),
    Check(id="model.missing", look=_missing),
    Check(id="model.too-large", look=_too_large),
)
