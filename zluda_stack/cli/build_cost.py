"""What building a plan's images takes the first time, in a line, for those who only look."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from zluda_stack.cli import context
from zluda_stack.errors import HostProblem

if TYPE_CHECKING:
    import click

    from zluda_stack.engines.docker.estimate import BuildCost
    from zluda_stack.plan.types import ImagePlan, Plan


def of(ctx: click.Context, plan: Plan) -> BuildCost | None:
    """The cost of what `up` would have to build; None when that is nothing.

    An engine that cannot be asked, as that of a replayed machine, is taken for one without images.
    """
    if plan.engine != "docker" or plan.offline:
        return None
    from zluda_stack.engines.docker.served import served_images

    cost = _estimated(served_images(plan), asked=not context.is_replay(ctx))
    return cost if cost.minutes else None


def at_a_glance(ctx: click.Context, plan: Plan) -> BuildCost | None:
    """As `of`, without how much room the engine's disk has, in a third of the time.

    None also where the engine does not say in time which images it has.
    """
    if plan.engine != "docker" or plan.offline:
        return None
    from zluda_stack.engines.docker.estimate import estimate
    from zluda_stack.engines.docker.served import served_images
    from zluda_stack.engines.docker.supply import by_name, tags_here

    images = served_images(plan)
    there = frozenset[str]() if context.is_replay(ctx) else tags_here(images, os.environ)
    if there is None:
        return None
    cost = estimate(None, by_name(images, there))
    return cost if cost.minutes else None


def line(cost: BuildCost, plan: Plan) -> str:
    """`cost` for people, with the command that shows the stages."""
    pulled = "" if plan.registry is None else f"; less where {plan.registry} has them"
    return (
        f"Building the images takes {cost.summary} the first time{pulled}. "
        "`zluda-stack build --dry-run`, with the same flags, shows every stage."
    )


def _estimated(images: tuple[ImagePlan, ...], *, asked: bool) -> BuildCost:
    """The cost of `images`, of which those count that the engine lacks if it can be `asked`."""
    from zluda_stack.engines.docker import containers
    from zluda_stack.engines.docker.estimate import estimate
    from zluda_stack.engines.docker.supply import here, nowhere

    if asked:
        try:
            with containers.connect() as client:
                return estimate(client, here(client, images))
        except HostProblem:
            pass  # what it lacks is told as an unmet need
    return estimate(None, nowhere(images))
