"""`zluda-stack lock`: what the images are pinned to, and whether it is still there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, output
from zluda_stack.cli.options import json_option, out_option, settings_options
from zluda_stack.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from zluda_stack.lock import Pin
    from zluda_stack.lock_check import Found


@click.command()
@settings_options("variant", "base", "combination", "zluda", "cuda_toolkit", "offline")
@out_option("zluda-stack.lock")
@click.option("--check", is_flag=True, help="Write nothing; ask upstream what is still there.")
@json_option
@click.pass_context
def lock(
    ctx: click.Context, flags: dict[str, object], *, out: Path, check: bool, as_json: bool
) -> None:
    """Write every digest, commit and hash that the images are built from.

    With --check the exit code is 0 when all of it is still there upstream, 3 when something is
    gone or has changed, and 4 when something could not be asked.
    """
    from zluda_stack.files import write_atomic
    from zluda_stack.lock import pins_of_all, render_lock

    settings = context.configured(ctx, flags).settings
    pins = pins_of_all(context.catalog(), settings)
    if check and settings.offline:
        raise UsageError("--check asks upstream, and offline nobody is asked", "Leave one out.")
    if check:
        ctx.exit(_check(pins, as_json=as_json))
    text = render_lock(pins)
    if str(out) == "-":
        click.echo(text, nl=False)
        return
    write_atomic(out, text)
    if as_json:
        output.print_json({"file": str(out), "pins": pins})
    else:
        output.say(f"{out}: {len(pins)} pins")


def _check(pins: tuple[Pin, ...], *, as_json: bool) -> ExitCode:
    from zluda_stack.lock_check import Answer, check, worst

    with output.progress() as progress:
        progress.step(f"asking upstream for {len(pins)} pins")
        found = check(pins)
    if as_json:
        output.print_json(found)
    else:
        _print(found)
    return {
        Answer.PRESENT: ExitCode.OK,
        Answer.UNREACHABLE: ExitCode.HOST,
    }.get(worst(found), ExitCode.REFUSED)


def _print(found: tuple[Found, ...]) -> None:
    from zluda_stack.lock_check import Answer

    worst_first = sorted(found, key=lambda each: -list(Answer).index(each.answer))
    rows = [(each.answer.value, each.pin.kind, each.pin.where, each.detail) for each in worst_first]
    output.table(("answer", "kind", "what", "detail"), rows)
