"""The command `render`: write the files that a plan stands for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, output
from zluda_stack.cli.options import Folder, dry_run_option, json_option, settings_options
from zluda_stack.cli.plan import resolve, with_own_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zluda_stack.plan.types import Plan
    from zluda_stack.render.project import Leftovers


@click.command()
@settings_options()
@click.option(
    "--out", type=Folder(path_type=Path), required=True, help="Folder that is written to."
)
@click.option("--force", is_flag=True, help="Overwrite files that were changed or are not ours.")
@click.option("--committed", is_flag=True, help="For the defaults and no host, as in the sources.")
@dry_run_option
@json_option
@click.pass_context
def render(
    ctx: click.Context,
    flags: dict[str, object],
    *,
    out: Path,
    force: bool,
    committed: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write the Dockerfiles, what they copy, the compose files and their .env.

    What an earlier render wrote into DIR and this one does not is removed, unless it was changed.

    Any machine can render for any card: zluda-stack render --gpu gfx1100 --out DIR

    Without a GPU: zluda-stack render --engine docker --gpu none --out DIR
    """
    from zluda_stack.render.project import Leftovers, conflicts, leftovers, write_project

    if committed:
        files = _committed(flags)
    else:
        plan = resolve(ctx, flags)
        files = _files(ctx, flags, plan)
        for notice in plan.warnings + with_own_files(ctx, plan).unmet:
            output.warn(notice.message, notice.hint)
    over = Leftovers() if committed else leftovers(files, out)
    if dry_run:
        written: Sequence[Path] = [out / path for path in files]
        refused = () if force else conflicts(files, out)
    else:
        written, refused = write_project(files, out, force=force, lasting=committed), ()
    if as_json:
        facts = {"files": [str(file) for file in written], "refused": refused, "dry_run": dry_run}
        removed = [str(out / path) for path in over.removable]
        output.print_json(facts | {"removed": removed, "left": over.changed})
        return
    own = out / "zluda_stack"
    sources = [file for file in written if own in file.parents]
    for file in written:
        if file not in sources:
            output.say(str(file))
    if sources:
        output.say(f"{own} ({len(sources)} files, for the endpoint's image)")
    _print_leftovers(over, out, dry_run=dry_run)
    for name in refused:
        output.warn(f"{out / name} would be refused: it was changed or is not ours", "Use --force.")


def _print_leftovers(over: Leftovers, out: Path, *, dry_run: bool) -> None:
    """What was rendered into `out` before and is not any more."""
    verb = "would be removed" if dry_run else "removed"
    own = [path for path in over.removable if path.startswith("zluda_stack/")]
    for path in over.removable:
        if path not in own:
            output.say(f"{verb}: {out / path}")
    if own:
        output.say(f"{verb}: {out / 'zluda_stack'} ({len(own)} files)")
    for path in over.changed:
        output.warn(
            f"{out / path} is of an earlier render and stays: it was changed since",
            "Remove it when you do not need it.",
        )


def _files(ctx: click.Context, flags: dict[str, object], plan: Plan) -> dict[str, str]:
    """The files of `plan` and of the toolbox, whose containers run as this user."""
    from msgspec import structs

    from zluda_stack.plan.toolbox import for_every_host
    from zluda_stack.render.project import render_project
    from zluda_stack.render.toolbox import render_toolbox

    user = {"ZLUDA_STACK_UID": str(os.getuid()), "ZLUDA_STACK_GID": str(os.getgid())}
    if not context.is_replay(ctx):
        plan = structs.replace(plan, host_environment=plan.host_environment | user)
    files = render_project(plan)
    settings = context.configured(ctx, flags).settings
    return files | render_toolbox(for_every_host(context.catalog(), settings))


def _committed(flags: dict[str, object]) -> dict[str, str]:
    from zluda_stack.errors import UsageError
    from zluda_stack.render.committed import render_committed

    if flags:
        raise UsageError(
            f"--committed is for the defaults, so it takes no {', '.join(sorted(flags))}",
            "Leave --committed out.",
        )
    return render_committed(context.catalog())
