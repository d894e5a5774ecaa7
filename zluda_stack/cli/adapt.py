"""`zluda-stack adapt`: an image with CUDA programs, made to find ZLUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec import structs

from zluda_stack.cli import context, output
from zluda_stack.cli.options import ImageName, json_option, settings_options
from zluda_stack.errors import HostProblem

if TYPE_CHECKING:
    from zluda_stack.engines.docker.adapt import Adapted
    from zluda_stack.plan.adapt import Adaptation
    from zluda_stack.plan.types import ImagePlan, Plan


@click.command()
@settings_options("gpu", "hsa_override")
@click.argument("image", type=ImageName(), metavar="IMAGE")
@click.option("-t", "--tag", metavar="NAME", help="What the adapted image is called.")
@click.option(
    "--from",
    "parts",
    type=ImageName(),
    metavar="IMAGE",
    help="An inference image other than the planned.",
)
@click.option("--audit", is_flag=True, help="Also for libraries found by RPATH; see docs/run.md.")
@click.option(
    "--print", "only_print", is_flag=True, help="Print its Dockerfile, and build nothing."
)
@json_option
@click.pass_context
def adapt(
    ctx: click.Context,
    flags: dict[str, object],
    *,
    image: str,
    tag: str | None,
    parts: str | None,
    audit: bool,
    only_print: bool,
    as_json: bool,
) -> None:
    """Make an image of IMAGE in which CUDA programs find ZLUDA and ROCm's libraries first.

    IMAGE stays as it is, and nothing of it is run but its loader. The new image keeps its
    entrypoint, its user and its settings. Needs the inference image of the card's target, and
    no GPU: --gpu gfx1100 names the card.
    """
    from zluda_stack.engines.docker import adapt as engine
    from zluda_stack.engines.docker import containers
    from zluda_stack.render.adapt import render_adaptation

    plan = _plan(ctx, flags)
    context.refuse_replay(ctx, "adapt")
    inference = next(planned for planned in plan.images if planned.name == "inference")
    with containers.connect() as client, output.progress() as progress:
        progress.step(f"looking into {image}")
        inference = structs.replace(inference, tag=parts or inference.tag)
        found = _adaptation(plan, inference, image, tag, audit=audit)
        if only_print:
            output.say(render_adaptation(found))
            return
        made = engine.make(client, found, inference, progress)
    if as_json:
        output.print_json({"adaptation": found, "image": made})
        return
    _print(found, made)


def _plan(ctx: click.Context, flags: dict[str, object]) -> Plan:
    """The plan for the card, which need not be here. Raises PlanRefused, HostProblem."""
    from zluda_stack.plan.building import hindrances
    from zluda_stack.plan.run import gpu_plan

    configured = context.configured(ctx, flags)
    try:
        plan = gpu_plan(context.facts(ctx, configured.settings), configured, context.catalog())
    except HostProblem as lack:
        raise HostProblem(
            f"which card the image is for is not known: {lack.message}",
            "Name its target, such as --gpu gfx1100.",
        ) from lack
    for need in hindrances(plan):
        raise HostProblem(need.message, need.hint)
    return plan


def _adaptation(
    plan: Plan, inference: ImagePlan, image: str, tag: str | None, *, audit: bool
) -> Adaptation:
    """What is to be done with `image`. Raises PlanRefused, HostProblem."""
    from zluda_stack.engines.docker import adapt as engine
    from zluda_stack.engines.docker import containers, look, run
    from zluda_stack.plan.adapt import Parts
    from zluda_stack.plan.adapt import adapt as decide
    from zluda_stack.plan.run import RunPlan

    gpu = plan.gpus[0]
    with containers.connect() as client:
        source = look.read_source(client, image)
    of_ours = RunPlan(image=inference.tag, command=(), target=gpu.target, build=inference.name)
    run.require_image(of_ours)
    parts = Parts(
        image=inference.tag,
        target=gpu.target,
        glibc=engine.needed_glibc(inference.tag),
        override=gpu.hsa_override,
    )
    found = decide(source, parts, tag=tag, front="audit" if audit else "library-path")
    for warning in found.warnings:
        output.warn(warning.message, warning.hint)
    return found


def _print(found: Adaptation, made: Adapted) -> None:
    output.heading(f"{made.tag} is {found.source} on ZLUDA, for {found.target}")
    for change in found.changes:
        output.say(f"  {change}")
    if made.added:
        output.say(f"  added what they need and the image lacked: {', '.join(made.added)}")
    output.say()
    output.say(f"  zluda-stack run --image {made.tag} -- PROGRAM...   # by its own entrypoint")
