"""`models`: what the catalogue and the store have, and how a model gets in and out."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, output
from zluda_stack.cli.models_explain import explain
from zluda_stack.cli.models_fit import fit
from zluda_stack.cli.models_list import list_
from zluda_stack.cli.options import dry_run_option, json_option
from zluda_stack.errors import ExitCode, HostProblem
from zluda_stack.units import megabytes

if TYPE_CHECKING:
    from zluda_stack.models.store import Check, Store


@click.group()
def models() -> None:
    """List, fetch, check and remove models."""


models.add_command(list_)
models.add_command(explain)
models.add_command(fit)


@models.command()
@click.argument("name")
@dry_run_option
def pull(name: str, *, dry_run: bool) -> None:
    """Fetch the model NAME of the catalogue, check its hash and keep it."""
    from zluda_stack.models.listing import find_model

    model, store = find_model(context.catalog(), name), _store()
    if dry_run:
        for command in store.pull_commands(model):
            output.say(shlex.join(command))
        return
    with output.progress() as progress:
        path = store.ensure(model, progress)
    output.say(f"{name} is ready: {path}")


@models.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Remove it even while a stack serves it.")
@dry_run_option
def rm(name: str, *, force: bool, dry_run: bool) -> None:
    """Remove the model NAME, or what a stopped pull of it left."""
    from zluda_stack.models.listing import find_entry

    store = _store()
    entry = find_entry(store, name)
    if not force:
        _require_unserved(name)
    if dry_run:
        output.say(shlex.join(("rm", "-rf", *map(str, store.removal(name)))))
        return
    store.remove(name)
    output.say(f"Removed {name} ({entry.state.value}, {megabytes(entry.bytes)}).")


@models.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option
@click.pass_context
def verify(ctx: click.Context, names: tuple[str, ...], *, as_json: bool) -> None:
    """Hash the models NAME, or all that are here, and compare with what was fetched."""
    from zluda_stack.models.listing import find_entry

    store = _store()
    entries = [find_entry(store, name) for name in names] or store.entries()
    with output.progress() as progress:
        checks = [
            check
            for entry in entries
            if entry.record is not None
            for check in store.verify(entry.name, progress)
        ]
    damaged = sorted({check.name for check in checks if not check.whole})
    if as_json:
        output.print_json(checks)
        ctx.exit(ExitCode.HOST if damaged else ExitCode.OK)
    for check in checks:
        output.say(_verdict(check))
    if not checks:
        output.say("The store has no whole model to check.")
    if damaged:
        raise HostProblem(
            f"{len(damaged)} of {len({check.name for check in checks})} models are damaged: "
            f"{', '.join(damaged)}",
            f"They are not served any more; `zluda-stack models pull {damaged[0]}` heals it.",
        )


def _require_unserved(model: str) -> None:
    """Raises HostProblem when a running stack serves `model` from the store."""
    from zluda_stack.engines import stacks_serving
    from zluda_stack.program import command

    for stack in stacks_serving(model):
        raise HostProblem(
            f"the running stack {stack} serves {model}",
            f"`{command('down', stack)}` stops it; --force removes the model all the same.",
        )


def _store() -> Store:
    from zluda_stack import paths
    from zluda_stack.models.store import Store

    return Store(paths.model_store())


def _verdict(check: Check) -> str:
    if check.whole:
        return f"{check.name}: whole (sha256 {check.expected})"
    found = f"found sha256 {check.found}" if check.found else "its file is gone"
    return f"{check.name}: damaged: expected sha256 {check.expected}, {found}"
