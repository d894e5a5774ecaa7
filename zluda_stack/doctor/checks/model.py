"""The model: is it here, is there room for it, and does it fit into memory."""

from __future__ import annotations

import shlex

from zluda_stack.doctor.subject import Subject
from zluda_stack.doctor.types import Check, Fix, Verdict, fail, ok, skip, warn
from zluda_stack.plan.types import ModelPlan
from zluda_stack.units import megabytes


def _size(subject: Subject) -> int | None:
    """The size of the planned model's file in bytes."""
    plan, local = subject.plan, subject.facts.local_model
    if plan is None:
        return None
    if plan.model.catalogued is not None:
        return plan.model.catalogued.size
    return local.size if local is not None and local.path == plan.model.path else None


def _no_room(subject: Subject) -> Verdict:
    plan, stack, free = subject.plan, subject.facts.stack, subject.facts.models_free_bytes
    size = _size(subject)
    fetched_here = plan is not None and plan.engine == "embedded" and plan.model.path is None
    if not fetched_here or size is None or free is None or free >= size:
        return ok()
    if stack is not None and stack.model_ready:
        return ok()
    return fail(
        f"the model takes {megabytes(size)}, its folder has {megabytes(free)} free",
        "the download would stop in its middle",
        Fix(command="zluda-stack models list", then="`zluda-stack models rm NAME` frees space."),
    )


def _missing(subject: Subject) -> Verdict:
    plan, stack = subject.plan, subject.facts.stack
    if plan is None or stack is None:
        return skip("the store was not looked at")
    if plan.model.path is not None:
        return ok(f"{plan.model.name} (a file of yours)")
    if stack.model_ready is None:
        return ok(f"{plan.model.name}; a container fetches it into a volume")
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
    size, (have, what) = _size(subject), _memory(subject)
    if size is None or have is None or size <= have:
        return ok()
    return warn(
        f"the model's file is {megabytes(size)}, {what} {megabytes(have)}",
        "what does not fit is computed on the CPU or read from disk again and again: very slow",
        Fix(command="zluda-stack models list", then="Take a smaller model, or more quantised."),
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
