"""`zluda-stack toolbox hipify`: CUDA sources to HIP, and what is left to do by hand."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct, structs

from zluda_stack.cli import in_toolbox, output
from zluda_stack.cli.options import dry_run_option, json_option
from zluda_stack.errors import ExitCode, HostProblem, UsageError

if TYPE_CHECKING:
    from zluda_stack.plan.run import RunPlan
    from zluda_stack.port.hipify import Conversion
    from zluda_stack.port.source import Unportable

_STDOUT = "-"
# As hipify-clang calls a result, and hipify-perl what it keeps of a source.
_RESULT, _BACKUP = ".hip", ".prehip"


class Way(Struct, frozen=True, kw_only=True):
    """Where results go: to `out`, over the source (`in_place`), nowhere (`check`), beside it."""

    out: str | None = None
    in_place: bool = False
    check: bool = False
    force: bool = False


class Done(Struct, frozen=True, kw_only=True):
    """One source: what became of it, and where the result and the source's copy are."""

    source: str
    written: str | None
    backup: str | None
    conversion: Conversion


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
    sources = tuple(dict.fromkeys(name for given in sources for name in _sources(given)))
    _require_sensible(way, sources, as_json=as_json)
    read = {name: _read(name) for name in sources}
    options = in_toolbox.options_of(ctx)
    in_toolbox.remember(ctx, structs.replace(options, dry_run=dry_run or options.dry_run))
    plans = {name: _container(ctx, name, clang=clang) for name in sources}
    if in_toolbox.options_of(ctx).dry_run:
        for plan in plans.values():
            in_toolbox.print_command(plan)
        return
    in_toolbox.require_image(ctx, plans[sources[0]])
    done = [_convert(name, read[name], plan, way, quiet=as_json) for name, plan in plans.items()]
    left = sum(len(one.conversion.to_do) for one in done)
    if as_json:
        output.print_json({"files": [_facts(one) for one in done], "left_to_do": left})
    if left:
        ctx.exit(ExitCode.GAPS)


def _sources(given: str) -> list[str]:
    """The file `given`, or the sources with CUDA below that folder. Raises UsageError."""
    from zluda_stack.port.folder import read_folder
    from zluda_stack.port.hipify import is_to_convert

    if not Path(given).is_dir():
        return [given]
    found = [
        str(Path(given, name))
        for name, text in read_folder(Path(given)).sources
        if is_to_convert(name, text)
    ]
    if not found:
        raise UsageError(f"there is no CUDA source in {given}", "Name the files themselves.")
    return found


def _require_sensible(way: Way, sources: tuple[str, ...], *, as_json: bool) -> None:
    if sum((way.out is not None, way.in_place, way.check)) > 1:
        raise UsageError("-o, --in-place and --check exclude each other", "Give one of them.")
    if way.out is not None and len(sources) > 1:
        raise UsageError("-o is for one source", "Without it each gets a SOURCE.hip beside it.")
    if way.out == _STDOUT and as_json:
        raise UsageError("-o - and --json both write to stdout", "Give one of them.")
    if way.out not in (None, _STDOUT) and _same(Path(way.out or ""), Path(sources[0])):
        raise UsageError(f"-o {way.out} is the source", "--in-place replaces it and keeps a copy.")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _read(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except FileNotFoundError as error:
        raise UsageError(f"there is no {name}", "Give the path of a CUDA source.") from error
    except OSError as error:
        raise HostProblem(f"cannot read {name}: {error.strerror}", "Check its owner.") from error


def _container(ctx: click.Context, name: str, *, clang: bool) -> RunPlan:
    """hipify-perl sees the source alone; hipify-clang the current folder, for its headers."""
    if not clang:
        return in_toolbox.lone_container(ctx, ("to-hip", "perl"))
    path = Path(name).resolve()
    plan = in_toolbox.container(ctx, ("to-hip", "clang", str(path), f"-I{path.parent}"))
    mounts = tuple(structs.replace(mount, read_only=True) for mount in plan.mounts)
    if not any(path.is_relative_to(mount.target) for mount in mounts):
        raise UsageError(
            f"{name} is not in the current folder, and hipify-clang sees only that",
            "Change to its project's folder.",
        )
    return structs.replace(plan, mounts=mounts, terminal=False)


def _convert(name: str, source: bytes, plan: RunPlan, way: Way, *, quiet: bool) -> Done:
    from zluda_stack.catalog.porting import porting
    from zluda_stack.engines.docker.toolbox import convert
    from zluda_stack.port.hipify import conversion, note

    with output.waiting(f"converting {name}"):
        converted = convert(plan, source)
    found = conversion(source.decode(errors="surrogateescape"), converted.told, porting())
    written = backup = None
    if not way.check:
        result = note(found).encode(errors="surrogateescape") + converted.result
        if way.in_place:
            backup = str(_keep(Path(name), source))
        written = _write(name, result, way)
    done = Done(source=name, written=written, backup=backup, conversion=found)
    if not quiet:
        _print(done, to_stderr=way.out == _STDOUT)
    return done


def _keep(path: Path, source: bytes) -> Path:
    """A copy of the source that is about to be replaced; one that is there stays."""
    from zluda_stack.files import write_atomic

    copy, number = path.with_name(path.name + _BACKUP), 1
    while copy.exists() and copy.read_bytes() != source:
        number += 1
        copy = path.with_name(f"{path.name}{_BACKUP}.{number}")
    write_atomic(copy, source, mode=_mode(path))
    return copy


def _write(name: str, result: bytes, way: Way) -> str:
    """Write `result` whole or not at all, and return where. Raises UsageError, HostProblem."""
    from zluda_stack.files import write_atomic

    if way.out == _STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(result)
        sys.stdout.buffer.flush()
        return _STDOUT
    source = Path(name)
    target = source if way.in_place else Path(way.out or f"{name}{_RESULT}")
    if not way.in_place and not way.force and target.exists() and target.read_bytes() != result:
        raise UsageError(
            f"{target} is there, and holds something else",
            "Overwrite it with --force, or name another with -o.",
        )
    write_atomic(target, result, mode=_mode(source))
    return str(target)


def _mode(path: Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116 -- of what a link leads to


def _print(done: Done, *, to_stderr: bool) -> None:
    say = output.note if to_stderr else output.say
    found = done.conversion
    counts = ", ".join(f"{what} {count}" for what, count in found.by_library.items())
    say(f"{done.source}: {sum(found.by_library.values())} names converted ({counts or 'none'})")
    if done.backup is not None:
        say(f"  the source is kept as {done.backup}")
    for place in found.to_do:
        say(f"  {done.source}:{place.line}: {_told(place)}")
    for place in found.to_look_at:
        say(f"  {done.source}:{place.line}: look at {_told(place)}")
    if done.written not in (None, _STDOUT):
        left = len(found.to_do)
        say(f"  written: {done.written}" + (f", with {left} places left to do" if left else ""))


def _told(place: Unportable) -> str:
    instead = f" -> {place.instead}" if place.instead else ""
    return f"{place.name}: {place.why}{instead}"


def _facts(done: Done) -> dict[str, object]:
    found = done.conversion
    return {
        "source": done.source,
        "written": done.written,
        "backup": done.backup,
        "by_library": found.by_library,
        "converted": found.converted,
        "to_do": found.to_do,
        "to_look_at": found.to_look_at,
    }
