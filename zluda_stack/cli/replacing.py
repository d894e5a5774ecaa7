"""What `up` changes of a stack that runs: said before, and agreed to where TLS would go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda_stack.cli import output
from zluda_stack.cli.agreement import agrees
from zluda_stack.errors import Interrupted

if TYPE_CHECKING:
    from zluda_stack.engines.base import Engine
    from zluda_stack.plan.types import Plan

_KEEP = "A flag counts for one `up` only; what stands in zluda-stack.yml stays."


def replaced(plan: Plan, engine: Engine) -> Plan | None:
    """The plan of the stack that runs and that `plan` would take the place of, if any."""
    from zluda_stack.engines import saved_plan
    from zluda_stack.engines.base import State

    before = saved_plan(plan.name)
    if before is None or engine.status(plan.name).state is State.STOPPED:
        return None
    return before


def warn(before: Plan, plan: Plan) -> None:
    """Say what becomes other than it is, a line for each."""
    from zluda_stack.plan.changes import changes

    found = changes(before, plan)
    for change in found:
        hint = _KEEP if change is found[-1] else ""
        output.warn(f"changes the running stack: {change}", hint)


def agree(before: Plan, plan: Plan, *, yes: bool) -> None:
    """Have the user agree to the end of TLS.

    Raises UsageError when nobody can be asked, Interrupted when the user says no.
    """
    from zluda_stack.plan.changes import loses_tls

    if yes or not loses_tls(before, plan):
        return
    subject = f"the stack {plan.name} would speak HTTP without TLS from now on"
    hint = (
        "Give --tls-cert and --tls-key again, or put tls_cert and tls_key into zluda-stack.yml; "
        "--yes takes TLS away."
    )
    if not agrees("Go on without TLS?", subject, hint):
        raise Interrupted("the stack runs as it did", "zluda-stack.yml keeps tls_cert and tls_key.")
