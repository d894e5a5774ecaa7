"""What `up` fetches of a large model: said before, and agreed to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda_stack import paths
from zluda_stack.cli import output
from zluda_stack.cli.agreement import agrees
from zluda_stack.errors import Interrupted

if TYPE_CHECKING:
    from zluda_stack.plan.types import Decision, Plan


def agree(plan: Plan, *, yes: bool, show: bool) -> None:
    """Say what fetching the plan's model takes, and have the user agree to much.

    Raises UsageError when nobody can be asked, Interrupted when the user says no.
    """
    from zluda_stack.plan.download import must_be_agreed_to

    told = needed(plan)
    if told is None:
        return
    if show:
        output.say(f"The model {plan.model.name} takes {told.value}: {told.because}.")
    if yes or not must_be_agreed_to(plan):
        return
    subject = f"the model {plan.model.name} takes {told.value}"
    hint = "Add --yes, or name a smaller one: `zluda-stack models list`."
    if not agrees("Fetch it?", subject, hint):
        raise Interrupted("nothing was fetched", "`zluda-stack models list` shows smaller models.")


def needed(plan: Plan) -> Decision | None:
    """What fetching the plan's model takes; None where it is here, or nothing is told of it."""
    from zluda_stack.plan.download import DOWNLOAD

    told = next((each for each in plan.decisions if each.what == DOWNLOAD), None)
    return None if told is None or _is_here(plan) else told


def _is_here(plan: Plan) -> bool:
    """True when this stack was started with the model before, or the store has it.

    Nobody sees into the volume of a container stack before it runs.
    """
    from zluda_stack.engines import saved_plan
    from zluda_stack.models.store import Store

    before = saved_plan(plan.name)
    if before is not None and before.model.catalogued == plan.model.catalogued:
        return True
    model = plan.model.catalogued
    return model is not None and Store(paths.model_store()).get(model) is not None
