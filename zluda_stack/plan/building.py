"""What must be true before images are built, wherever they are to run."""

from __future__ import annotations

from zluda_stack.errors import HostProblem, PlanRefused
from zluda_stack.plan.types import Notice, Plan

# The codes of `Plan.unmet` that stand in the way of a build; the others only of a run here.
DOCKER = "docker"
TERMS = "terms"


def require_buildable(plan: Plan) -> None:
    """Return when the images of `plan` can be built on this machine.

    Raises PlanRefused for a plan without images and for terms that were not accepted,
    HostProblem when Docker is missing.
    """
    require_images(plan)
    for notice in hindrances(plan):
        kind = PlanRefused if notice.code == TERMS else HostProblem
        raise kind(notice.message, notice.hint)


def hindrances(plan: Plan) -> tuple[Notice, ...]:
    """What this machine and its user lack to build the images of `plan`."""
    return tuple(notice for notice in plan.unmet if notice.code in (TERMS, DOCKER))


def require_images(plan: Plan) -> None:
    """Raises PlanRefused for a plan without images."""
    if not plan.images:
        raise PlanRefused(
            f"the {plan.engine} engine has no images to build",
            "Name the card to build for, such as --gpu gfx1100, or --engine docker --gpu none.",
        )
