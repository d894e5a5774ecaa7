"""`zluda-stack bake`: the images of every gfx target as a file for `docker buildx bake`."""

from __future__ import annotations

from pathlib import Path

import click

from zluda_stack.cli import context, output
from zluda_stack.cli.options import json_option, out_option, settings_options


@click.command()
@settings_options(
    *("profile", "variant", "base", "combination", "zluda", "cuda_toolkit", "accept_cuda_eula")
)
@out_option("docker-bake.json")
@json_option
@click.pass_context
def bake(ctx: click.Context, flags: dict[str, object], *, out: Path, as_json: bool) -> None:
    """Write every image of every gfx target as a file for `docker buildx bake`.

    It belongs beside the folder images/: `docker buildx bake --file docker-bake.json cpu`
    """
    from zluda_stack.files import write_atomic
    from zluda_stack.plan.reference import cpu_plan, gpu_plans
    from zluda_stack.plan.toolbox import toolbox_image
    from zluda_stack.render.bake import render_bake

    catalog, settings = context.catalog(), context.configured(ctx, flags).settings
    toolbox = toolbox_image(catalog, settings)
    text = render_bake(cpu_plan(catalog, settings), gpu_plans(catalog, settings), toolbox)
    if str(out) == "-":
        click.echo(text, nl=False)
        return
    write_atomic(out, text)
    if as_json:
        output.print_json({"file": str(out)})
    else:
        output.say(str(out))
