"""`zluda-stack toolbox hipify`: CUDA sources to HIP, and what is left to do by hand."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import structs

from zluda_stack.cli import in_toolbox, output
from zluda_stack.cli.hipify_files import (
    STDOUT,
    Way,
    read_sources,
    require_one_way,
    require_sensible,
    wanted,
    write_all,
)
from zluda_stack.cli.options import dry_run_option, json_option
from zluda_stack.errors import ExitCode, HostProblem, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zluda_stack.cli.hipify_files import Written
    from zluda_stack.engines.docker.toolbox import Output
    from zluda_stack.plan.run import RunPlan
    from zluda_stack.port.hipify import Conversion
    from zluda_stack.port.source import Unportable


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("-o", "--output", "out", metavar="FILE", help="The result's name; - is stdout.")
@click.option("--in-place", is_flag=True, help="Replace each SOURCE; SOURCE.prehip keeps it.")
@click.option("--check", is_flag=True, help="Only report; write nothing.")
@click.option("--force", is_flag=True, help="Overwrite a result that is there and is another.")
@click.option("--clang", is_flag=True, help="By hipify-clang, which needs NVIDIA's toolkit.")
@dry_run_option
@json_option
@click.pass_context
def hipify(
    ctx: click.Context,
    sources: tuple[str, ...],
    *,
    out: str | None,
    in_place: bool,
    check: bool,
    force: bool,
    clang: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Convert CUDA sources to HIP, and say what could not be converted, line by line.

    SOURCE.hip is written beside each SOURCE; of a folder those with CUDA are taken. What
    hipify-perl leaves in silence, such as inline PTX, is looked for too. Exit code 6 when anything
    is left to do by hand: the result is written all the same, with a note of it at its top.
    """
    way = Way(out=out, in_place=in_place, check=check, force=force)
    if out == STDOUT and as_json:
        raise UsageError("-o - and --json both write to stdout", "Give one of them.")
    require_one_way(way)
    read = _read(sources)
    require_sensible(way, tuple(read))
    options = in_toolbox.options_of(ctx)
    in_toolbox.remember(ctx, structs.replace(options, dry_run=dry_run or options.dry_run))
    with _told_what_needs_no_docker(sources):
        plans = _containers(ctx, read, clang=clang)
        if in_toolbox.options_of(ctx).dry_run:
            _print_dry_run(plans, read, way, as_json=as_json)
            return
        in_toolbox.require_image(ctx, next(iter(plans.values())))
    if clang:
        _require_clang(ctx, next(iter(plans.values())).image)
    new = _without_notes(read)
    outputs = _convert(plans, new)
    found = _found(new, outputs)
    written = write_all(_results(outputs, found), read, way)
    if as_json:
        _print_json(found, written)
    for name in () if as_json else found:
        _print(name, found[name], written[name])
    if any(one.to_do for one in found.values()):
        ctx.exit(ExitCode.GAPS)


def _read(sources: tuple[str, ...]) -> dict[str, bytes]:
    """The sources; of files in folders that could not be read it is warned."""
    from zluda_stack.cli.check import teller

    read, unread = read_sources(sources, teller())
    for folder, count in unread.items():
        if count:
            output.warn(
                f"not read in {output.printable(folder)}: {count} of its files and folders",
                "They are no text, larger than 4 MiB, or another user's.",
            )
    return read


@contextmanager
def _told_what_needs_no_docker(sources: tuple[str, ...]) -> Iterator[None]:
    """The converters are in the toolbox's image; what only counts is not."""
    try:
        yield
    except HostProblem as problem:
        path = shlex.quote(sources[0]) if len(sources) == 1 else "PATH"
        instead = f"`zluda-stack advise {path}` counts what hipify would leave, without Docker."
        raise HostProblem(problem.message, f"{problem.hint} {instead}".strip()) from problem


def _print_dry_run(
    plans: dict[str, RunPlan], read: dict[str, bytes], way: Way, *, as_json: bool
) -> None:
    """Print what would be converted into which files, and by which commands."""
    places = wanted(read, way)
    commands = [in_toolbox.command_of(plan) for plan in plans.values()]
    if as_json:
        files = [
            {
                "source": name,
                "written": place.result,
                "backup": place.backup,
                "is_there": _is_there(place, way),
            }
            for name, place in places.items()
        ]
        output.print_json({"files": files, "commands": commands})
        return
    for (name, place), command in zip(places.items(), commands, strict=True):
        output.say(output.printable(f"# {_told_place(name, place, way)}"))
        output.say(f"{shlex.join(command)} < {shlex.quote(name)}")


def _is_there(place: Written, way: Way) -> bool:
    """True when another file than the source is where the result would go."""
    if way.in_place or place.result in (None, STDOUT):
        return False
    return Path(str(place.result)).exists()


def _told_place(name: str, place: Written, way: Way) -> str:
    if place.result is None:
        return f"{name}: only a report"
    told = f"{name} -> {'stdout' if place.result == STDOUT else place.result}"
    if place.backup is not None:
        return f"{told}; the source is kept: {place.backup}"
    if not _is_there(place, way):
        return told
    if way.force:
        return f"{told}; the file there is overwritten"
    return f"{told}; the file there is overwritten with --force only, unless it is the same"


def _containers(ctx: click.Context, names: Iterable[str], *, clang: bool) -> dict[str, RunPlan]:
    """For each source the container of its converter.

    hipify-perl sees the source alone; hipify-clang the current folder, for its headers.
    """
    if not clang:
        return dict.fromkeys(names, in_toolbox.lone_container(ctx, ("to-hip", "perl")))
    plan = in_toolbox.container(ctx, ("to-hip", "clang"))
    mounts = tuple(structs.replace(mount, read_only=True) for mount in plan.mounts)
    plan = structs.replace(plan, mounts=mounts, terminal=False)
    return {name: _by_clang(plan, name) for name in names}


def _by_clang(plan: RunPlan, name: str) -> RunPlan:
    path = Path(name).resolve()
    for mount in plan.mounts:
        if path.is_relative_to(mount.source):
            inside = Path(mount.target, path.relative_to(mount.source))
            own = (str(inside), f"-I{inside.parent}")
            return structs.replace(plan, command=(*plan.command, *own))
    raise UsageError(
        f"{name} is not in the current folder, and hipify-clang sees only that",
        "Change to its project's folder.",
    )


def _require_clang(ctx: click.Context, image: str) -> None:
    """Return unless `image` says that it was built without it. Raises PlanRefused, HostProblem."""
    from zluda_stack.cli import context
    from zluda_stack.engines.docker import containers
    from zluda_stack.engines.docker.toolbox import lacks
    from zluda_stack.plan.toolbox import CLANG, toolbox_image, without_clang

    with containers.connect() as client:
        if not lacks(client, image, CLANG):
            return
    settings = context.configured(ctx, in_toolbox.options_of(ctx).flags).settings
    planned = toolbox_image(context.catalog(), settings)
    raise without_clang(image, planned.variant, context.catalog())


def _without_notes(read: dict[str, bytes]) -> dict[str, bytes]:
    """The sources without what an earlier conversion noted in them."""
    from zluda_stack.port.hipify import without_note

    return {name: without_note(source) for name, source in read.items()}


def _convert(plans: dict[str, RunPlan], read: dict[str, bytes]) -> dict[str, Output]:
    """What the converter makes of each source, several at a time. Raises EngineFailure."""
    from concurrent.futures import ThreadPoolExecutor

    from zluda_stack.engines.docker.toolbox import convert

    what = next(iter(plans)) if len(plans) == 1 else f"{len(plans)} sources"
    with (
        output.waiting(f"converting {what}"),
        ThreadPoolExecutor(min(len(plans), os.cpu_count() or 1)) as pool,
    ):
        outputs = pool.map(convert, plans.values(), (read[name] for name in plans))
        return dict(zip(plans, outputs, strict=True))


def _found(read: dict[str, bytes], outputs: dict[str, Output]) -> dict[str, Conversion]:
    """What was converted of each source, and what is left to do."""
    from zluda_stack.catalog.porting import porting
    from zluda_stack.port.hipify import conversion

    facts = porting()
    # Any bytes are text here, and the same bytes again: sources are older than UTF-8.
    texts = {name: source.decode(errors="surrogateescape") for name, source in read.items()}
    return {name: conversion(text, outputs[name].told, facts) for name, text in texts.items()}


def _results(outputs: dict[str, Output], found: dict[str, Conversion]) -> dict[str, bytes]:
    """What is to be written: the converter's results, noted at the top what is left to do."""
    from zluda_stack.port.hipify import note

    return {
        name: note(found[name]).encode(errors="surrogateescape") + made.result
        for name, made in outputs.items()
    }


def _print(name: str, found: Conversion, written: Written) -> None:
    show = output.note if written.result == STDOUT else output.say

    def say(text: str) -> None:
        show(output.printable(text))

    counts = ", ".join(f"{what} {count}" for what, count in found.by_library.items())
    say(f"{name}: {sum(found.by_library.values())} names converted ({counts or 'none'})")
    for place in found.to_do:
        say(f"  {name}:{place.line}: {_told(place)}")
    for place in found.to_look_at:
        say(f"  {name}:{place.line}: look at {_told(place)}")
    if written.backup is not None:
        say(f"  the source is kept: {written.backup}")
    if written.result not in (None, STDOUT):
        left = f"; left to do by hand: {len(found.to_do)}" if found.to_do else ""
        say(f"  written: {written.result}{left}")


def _told(place: Unportable) -> str:
    instead = f" -> {place.instead}" if place.instead else ""
    return f"{place.name}: {place.why}{instead}"


def _print_json(found: dict[str, Conversion], written: dict[str, Written]) -> None:
    files = [
        {
            "source": name,
            "written": written[name].result,
            "backup": written[name].backup,
            "by_library": one.by_library,
            "converted": one.converted,
            "to_do": one.to_do,
            "to_look_at": one.to_look_at,
        }
        for name, one in found.items()
    ]
    left = sum(len(one.to_do) for one in found.values())
    output.print_json({"files": files, "left_to_do": left})
