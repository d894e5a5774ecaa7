"""`models pull`, `verify`, `rm`, `gc`: a model gets into the store, stays whole, and goes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, output
from zluda_stack.cli.cards import Amount
from zluda_stack.cli.options import dry_run_option, json_option, settings_options
from zluda_stack.errors import ExitCode, HostProblem, StackError, UsageError
from zluda_stack.units import megabytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zluda_stack.models.asked import Asked
    from zluda_stack.models.fetching import Fetching
    from zluda_stack.models.layout import Record
    from zluda_stack.models.store import Check, Entry, Store
    from zluda_stack.models.wanted import WantedModel

_FASTEST = 1 << 40


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--name", metavar="NAME", help="What to call a model that is not in the catalogue.")
@click.option("--sha256", metavar="HEX", help="The hash that the one file must have.")
@click.option("--from", "peer", metavar="DIR|URL", help="Another store, to fetch it from there.")
@click.option(
    "--limit-rate", "limit", type=Amount("rate", _FASTEST), help="Bytes a second, such as 5M."
)
@click.option("--update", is_flag=True, help="Take what the source has now, where nothing pins it.")
@settings_options("offline")
@dry_run_option
@click.pass_context
def pull(
    ctx: click.Context,
    flags: dict[str, object],
    names: tuple[str, ...],
    *,
    name: str | None,
    sha256: str | None,
    peer: str | None,
    limit: int | None,
    update: bool,
    dry_run: bool,
) -> None:
    """Fetch the models NAME, check their hashes and keep them.

    NAME is one of the catalogue, hf:OWNER/REPOSITORY/FILE.gguf[@REVISION],
    hf:OWNER/REPOSITORY[:Q4_K_M] or https://.../FILE.gguf. A pull that was stopped goes on where
    it stopped.
    """
    asked = _asked(names, name, sha256)
    if context.configured(ctx, flags).settings.offline:
        _require_near(names, peer, update=update)
    fetching = _fetching(peer, limit, update=update)
    with output.progress() as progress:
        from zluda_stack.models.asked import wanted

        store = _store(fetching)
        models = [wanted(each, context.catalog(), store, fetching, progress) for each in asked]
        if not dry_run:
            before = {model.name: store.record(model.name) for model in models}
            from zluda_stack.models.pulls import pull_all

            became = pull_all(store, models, progress)
    if dry_run:
        _say_commands(store, models)
        return
    _say_became(store, models, became, before)


@click.command()
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
        _say_removal(store.removal(name))
        return
    store.remove(name)
    output.say(f"Removed {name} ({entry.state.value}, {megabytes(entry.bytes)}).")


@click.command()
@json_option
@dry_run_option
def gc(*, as_json: bool, dry_run: bool) -> None:
    """Remove files that no model needs, and what stopped pulls left."""
    store = _store()
    garbage = store.garbage() if dry_run else store.collect()
    if as_json:
        output.print_json(garbage)
        return
    if dry_run:
        _say_removal([Path(one.path) for one in garbage])
        return
    for one in garbage:
        output.say(f"removed {one.path} ({megabytes(one.bytes)}): {one.reason}")
    output.say(f"{megabytes(sum(one.bytes for one in garbage))} were freed.")


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option
@click.pass_context
def verify(ctx: click.Context, names: tuple[str, ...], *, as_json: bool) -> None:
    """Hash the models NAME, or all that are here, and compare with what was fetched."""
    from zluda_stack.models.listing import find_entry

    store = _store()
    entries = [find_entry(store, name) for name in names] or store.entries()
    checks = _verified(store, entries)
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


def _require_near(names: tuple[str, ...], peer: str | None, *, update: bool) -> None:
    """Raises HostProblem for a model that would come over the network."""
    if peer is not None and "://" not in peer:
        return
    store, models = _store(), context.catalog().models
    for name in names:
        here = store.get(models[name]) if name in models else store.find(name)
        if update or here is None:
            from zluda_stack.plan.offline import BRINGS

            raise HostProblem(f"{name} is not here, and offline nothing is fetched", BRINGS)


def _asked(names: tuple[str, ...], name: str | None, sha256: str | None) -> list[Asked]:
    from zluda_stack.models.asked import Asked

    if len(names) > 1 and (name is not None or sha256 is not None):
        raise UsageError(
            "--name and --sha256 are of one model, and several are named", "Pull it alone."
        )
    if sha256 is not None and not _is_sha256(sha256):
        raise UsageError(f"{sha256!r} is no SHA-256", "It has 64 hexadecimal digits.")
    digest = None if sha256 is None else sha256.lower()
    return [Asked(text=text, name=name, sha256=digest) for text in dict.fromkeys(names)]


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and all(digit in "0123456789abcdefABCDEF" for digit in text)


def _fetching(peer: str | None, limit: int | None, *, update: bool) -> Fetching:
    from zluda_stack.models.fetching import Fetching
    from zluda_stack.models.throttle import Throttle

    return Fetching(limit=Throttle(limit), peer=peer, update=update)


def _say_commands(store: Store, models: Sequence[WantedModel]) -> None:
    for model in models:
        for command in store.pull_commands(model):
            output.say(shlex.join(command))


def _say_became(
    store: Store,
    models: Sequence[WantedModel],
    became: Sequence[Path | StackError],
    before: dict[str, Record | None],
) -> None:
    """One line a model; raises the first failure, after all were told."""
    failures = []
    for model, result in zip(models, became, strict=True):
        if isinstance(result, StackError):
            failures.append(result)
            continue
        for change in _changes(before[model.name], store.record(model.name)):
            output.note(f"{model.name} changed: {change}")
        output.say(f"{model.name} is ready: {result}")
    for failure in failures[1:]:
        output.warn(failure.message, failure.hint)
    if failures:
        raise failures[0]


def _changes(before: Record | None, after: Record | None) -> list[str]:
    """What is another in the store now than at the pull before."""
    if before is None or after is None:
        return []
    told = []
    if before.hub is not None and after.hub is not None and before.hub != after.hub:
        told.append(f"revision {before.hub.revision} -> {after.hub.revision}")
    old, new = ([file.sha256 for file in record.files] for record in (before, after))
    if old != new:
        told.append(f"sha256 {', '.join(old)} -> {', '.join(new)}")
    return told


def _verified(store: Store, entries: Sequence[Entry]) -> list[Check]:
    with output.progress() as progress:
        return [
            check
            for entry in entries
            if entry.record is not None
            for check in store.verify(entry.name, progress)
        ]


def _require_unserved(model: str) -> None:
    """Raises HostProblem when a running stack serves `model` from the store."""
    from zluda_stack.engines import stacks_serving
    from zluda_stack.program import command

    for stack in stacks_serving(model):
        raise HostProblem(
            f"the running stack {stack} serves {model}",
            f"`{command('down', stack)}` stops it; --force removes the model all the same.",
        )


def _say_removal(doomed: Sequence[Path]) -> None:
    if doomed:
        output.say(shlex.join(("rm", "-rf", *map(str, doomed))))


def _store(fetching: Fetching | None = None) -> Store:
    from zluda_stack import paths
    from zluda_stack.models.store import Store

    return Store(paths.model_store(), fetching=fetching)


def _verdict(check: Check) -> str:
    part = f", {check.file}" if check.split else ""
    if check.whole:
        return f"{check.name}{part}: whole (sha256 {check.expected})"
    found = f"found sha256 {check.found}" if check.found else "its file is gone"
    return f"{check.name}{part}: damaged: expected sha256 {check.expected}, {found}"
