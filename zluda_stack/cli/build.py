"""`zluda-stack build`: the images of a container stack, with their cost said before."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zluda_stack import paths
from zluda_stack.cli import context, output
from zluda_stack.cli.agreement import agrees
from zluda_stack.cli.options import dry_run_option, json_option, settings_options, yes_option
from zluda_stack.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from docker import DockerClient

    from zluda_stack.engines.docker.estimate import BuildCost, ImageCost, StageCost
    from zluda_stack.engines.docker.state import StackFolder
    from zluda_stack.engines.docker.supply import Supply
    from zluda_stack.plan.types import ImagePlan, Plan


@click.command()
@settings_options()
@click.argument("names", metavar="[IMAGE]...", nargs=-1)
@click.option("--push", is_flag=True, help="Then push to the registry what it lacks.")
@yes_option
@dry_run_option
@json_option
@click.pass_context
def build(
    ctx: click.Context,
    flags: dict[str, object],
    names: tuple[str, ...],
    *,
    push: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Build the images of a container stack, or only each IMAGE named.

    Any machine can build for any card: zluda-stack build --gpu gfx1100

    With --registry, what was pushed there by an earlier build is pulled instead. `toolbox` as the
    only IMAGE is that of `zluda-stack toolbox`.
    """
    from zluda_stack.engines.docker import containers
    from zluda_stack.engines.docker.registry import names_in
    from zluda_stack.engines.docker.supply import survey
    from zluda_stack.plan.building import require_buildable, require_images
    from zluda_stack.plan.toolbox import require_pushable

    plan, folder = _planned(ctx, flags, names)
    require_images(plan)
    images = _chosen(plan, names)
    if push:
        require_pushable(images)
    names_there = names_in(plan.registry, images) if push else {}
    if dry_run:
        _dry_run(ctx, plan, images, names_there, folder, as_json=as_json)
        return
    require_buildable(plan)
    context.refuse_replay(ctx, "build")
    with containers.connect() as client:
        supply = survey(client, plan, images)
        cost = agree(client, supply, yes=yes, show=not as_json)
        logs = _provide(client, plan, supply, folder)
        pushed = _push(client, names_there, images, folder)
    if as_json:
        tags = [image.tag for image in images]
        output.print_json({"images": tags, "cost": cost, "logs": logs, "pushed": pushed})
        return
    for image in images:
        how = f"its log: {logs[image.name]}" if image.name in logs else "as it was before"
        output.say(f"{image.tag}  # {how}")
    for where in pushed.values():
        output.say(f"{where}  # in the registry")


def _planned(
    ctx: click.Context, flags: dict[str, object], names: tuple[str, ...]
) -> tuple[Plan, StackFolder]:
    """The plan whose images are meant, and where they are built.

    The toolbox belongs to no stack, needs no card, and leaves the files of one alone.
    """
    from zluda_stack.cli.plan import resolve
    from zluda_stack.engines.docker.state import StackFolder
    from zluda_stack.plan.toolbox import NAME, toolbox_plan

    if names != (NAME,):
        plan = resolve(ctx, flags)
        return plan, StackFolder(paths.stack(plan.name))
    configured = context.configured(ctx, flags)
    facts = context.facts(ctx, configured.settings)
    return toolbox_plan(facts, configured, context.catalog()), StackFolder(paths.toolbox())


def agree(client: DockerClient, supply: Supply, *, yes: bool, show: bool) -> BuildCost:
    """What providing `supply` costs, once there is room for it and the user agrees to much.

    Raises HostProblem when the disk is too small, UsageError when nobody can be asked,
    Interrupted when the user says no.
    """
    from zluda_stack.engines.docker.estimate import estimate, require_room

    cost = estimate(client, supply)
    if show and cost.minutes:
        _print_cost(cost)
    require_room(cost)
    if not cost.is_large or yes:
        return cost
    if not agrees("Start it?", f"the build takes {cost.summary}", "Add --yes."):
        raise Interrupted("nothing was built", "`zluda-stack build` asks again.")
    return cost


def _chosen(plan: Plan, names: tuple[str, ...]) -> tuple[ImagePlan, ...]:
    from zluda_stack.catalog.nearest import nearest
    from zluda_stack.plan.toolbox import NAME, is_toolbox

    if is_toolbox(plan):
        return plan.images
    known = {image.name: image for image in plan.images}
    for name in names:
        if name == NAME:
            raise UsageError("the toolbox belongs to no stack", "Build it by itself: build toolbox")
        if name not in known:
            close = nearest(name, known)
            hint = f"Did you mean {close[0]}? " if close else ""
            raise UsageError(
                f"this stack has no image {name!r}", f"{hint}It has {', '.join(known)}."
            )
    return tuple(image for name, image in known.items() if not names or name in names)


def _provide(
    client: DockerClient, plan: Plan, supply: Supply, folder: StackFolder
) -> dict[str, Path]:
    from zluda_stack.engines.common import alone, make_private
    from zluda_stack.engines.docker.mirror import mirror
    from zluda_stack.engines.docker.supply import provide
    from zluda_stack.plan.toolbox import is_toolbox
    from zluda_stack.render.project import render_project
    from zluda_stack.render.toolbox import render_toolbox

    files = render_toolbox(plan) if is_toolbox(plan) else render_project(plan)
    make_private(folder.root)
    try:
        with output.progress() as progress, alone(folder.root, progress):
            mirror(files, folder.context)
            return provide(client, supply, folder.context, folder.root, progress)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; what was built so far is kept", "`zluda-stack build` goes on from there."
        ) from None


def _push(
    client: DockerClient, names: dict[str, str], images: Sequence[ImagePlan], folder: StackFolder
) -> dict[str, str]:
    from zluda_stack.engines.docker.registry import push

    try:
        with output.progress() as progress:
            wanted = [image for image in images if image.name in names]
            return {
                image.name: push(client, image, names[image.name], folder.root, progress)
                for image in wanted
            }
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; the images are here, and not all of them are in the registry",
            "The same command goes on from there.",
        ) from None


def _dry_run(
    ctx: click.Context,
    plan: Plan,
    images: tuple[ImagePlan, ...],
    names: dict[str, str],
    folder: StackFolder,
    *,
    as_json: bool,
) -> None:
    """Print what a build would run and take, also where nothing can be built yet."""
    from zluda_stack.engines.docker import containers
    from zluda_stack.engines.docker.supply import nowhere, survey
    from zluda_stack.plan.building import DOCKER, hindrances

    missing = hindrances(plan)
    for notice in missing:
        output.warn(notice.message, notice.hint)
    # The engine of this machine knows nothing of the one that is replayed.
    if context.is_replay(ctx) or any(notice.code == DOCKER for notice in missing):
        _print_dry_run(None, nowhere(images), names, folder, as_json=as_json)
        return
    with containers.connect() as client:
        supply = survey(client, plan, images)
        _print_dry_run(client, supply, names, folder, as_json=as_json)


def _print_dry_run(
    client: DockerClient | None,
    supply: Supply,
    names: dict[str, str],
    folder: StackFolder,
    *,
    as_json: bool,
) -> None:
    from zluda_stack.engines.docker.estimate import estimate
    from zluda_stack.engines.docker.registry import push_commands
    from zluda_stack.engines.docker.supply import commands

    cost = estimate(client, supply)
    images = {one.image.name: one.image for one in supply.images}
    pushes = (line for name in names for line in push_commands(images[name], names[name]))
    lines = [*commands(supply, folder.context), *pushes]
    if as_json:
        output.print_json({"cost": cost, "commands": lines})
        return
    _print_cost(cost)
    for line in lines:
        output.say(shlex.join(line))


def _print_cost(cost: BuildCost) -> None:
    """Every stage once, with the images that need it, and what the whole takes."""
    needed_by: dict[StageCost, list[ImageCost]] = {}
    for image in cost.images:
        for stage in image.stages:
            needed_by.setdefault(stage, []).append(image)
    rows = [
        (
            f"{stage.part}: {stage.stage}",
            ", ".join(image.image for image in images),
            _time(stage, images),
            f"{stage.disk_gb:.1f} GB",
            f"{stage.memory_gb:.1f} GB",
            stage.source,
        )
        for stage, images in needed_by.items()
    ]
    if rows:
        output.table(("stage", "image", "time", "disk", "memory", "how it is known"), rows)
    free = "" if cost.free_gb is None else f"; {cost.storage} has {cost.free_gb:.0f} GB free"
    whole = f"A first build takes {cost.summary}{free}."
    output.say(whole if cost.minutes else "Every image was built before; only what changed is.")


def _time(stage: StageCost, images: Sequence[ImageCost]) -> str:
    """How long the stage takes that `images` need."""
    from zluda_stack.engines.docker.estimate import duration

    if all(image.present or image.pulled for image in images):
        return "in the registry" if any(image.pulled for image in images) else "built before"
    return duration(stage.minutes)
