"""`zluda-stack run`: a CUDA program in a container of its own, on the GPU, through ZLUDA."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zluda_stack import paths
from zluda_stack.cli import context, output
from zluda_stack.cli.options import ImageName, dry_run_option, folder_options, settings_options
from zluda_stack.errors import HostProblem, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zluda_stack.plan.run import Mount, RunPlan, Wish
    from zluda_stack.plan.types import Plan
    from zluda_stack.settings import Profile

_DRIVER = "libcuda.so"


@click.command(context_settings={"allow_interspersed_args": False})
@settings_options("gpu", "passthrough", "hsa_override")
@folder_options("the program")
@click.option(
    "--image",
    type=ImageName(),
    metavar="IMAGE",
    help="An image with your program, such as `adapt` makes.",
)
@click.option("--audit", is_flag=True, help="Put ZLUDA in front by LD_AUDIT; see docs/run.md.")
@click.option("--zluda", metavar="DIR", help="A ZLUDA of yours in the place of the image's.")
@click.option("--trace", is_flag=True, help="Record what the program asks of CUDA, for a report.")
@click.option("-o", "--output", "bundle", metavar="FILE", help="With --trace: the bundle's name.")
@dry_run_option
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="PROGRAM...")
@click.pass_context
def run(
    ctx: click.Context,
    flags: dict[str, object],
    *,
    mounts: tuple[str, ...],
    environment: tuple[str, ...],
    image: str | None,
    zluda: str | None,
    bundle: str | None,
    program: tuple[str, ...],
    no_cwd: bool,
    audit: bool,
    trace: bool,
    dry_run: bool,
) -> None:
    """Run a CUDA program on the GPU, through ZLUDA: zluda-stack run -- ./program --its-option

    It runs in a container, as you, in the current folder, which it may write; of this machine
    it sees nothing else but what --mount names. The exit code is the program's own, 128 + n
    where signal n ended it; 4 when no CUDA device shows up.
    """
    from msgspec import structs

    from zluda_stack.plan.run import run_plan

    if bundle is not None and not trace:
        raise UsageError("--output names the bundle of --trace", "Add --trace.")
    wish = structs.replace(
        wish_for(program),
        mounts=tuple(map(given_mount, mounts)),
        environment=dict(map(given_variable, environment)),
        image=image,
        front="audit" if audit else "library-path",
        zluda=None if zluda is None else zluda_folder(zluda),
        trace="TRACE" if trace else None,
    )
    if no_cwd:
        wish = structs.replace(wish, folder=None)
    require_program(wish)
    plan = card_plan(ctx, flags)
    planned = run_plan(plan, wish)
    for warning in planned.warnings:
        output.warn(warning.message, warning.hint)
    if dry_run:
        _print_command(planned)
        return
    ready(ctx, "run", planned)
    if trace:
        from zluda_stack.cli.trace import traced

        ctx.exit(traced(ctx, flags, plan, wish, bundle))
    from zluda_stack.engines.docker.run import replace_this_process

    replace_this_process(planned)


def card_plan(
    ctx: click.Context, flags: dict[str, object], profile: Profile = "translated"
) -> Plan:
    """The plan of the cards that these settings choose for `profile`, which are here.

    Raises PlanRefused, HostProblem.
    """
    from zluda_stack.plan.resolve import require_runnable
    from zluda_stack.plan.run import gpu_plan

    configured = context.configured(ctx, flags)
    facts = context.facts(ctx, configured.settings)
    plan = gpu_plan(facts, configured, context.catalog(), profile)
    require_runnable(plan)
    return plan


def wish_for(program: tuple[str, ...]) -> Wish:
    """`program` as this user, in the current folder, on this terminal if there is one."""
    from zluda_stack.plan.run import Wish

    return Wish(
        program=program,
        uid=os.getuid(),
        gid=os.getgid(),
        home=str(Path.home().resolve()),
        folder=str(current_folder()),
        cache=str(paths.compiled_kernels()),
        terminal=is_terminal(),
    )


def ready(ctx: click.Context, verb: str, planned: RunPlan) -> None:
    """Return when `planned` can start: what it mounts is made, its image is there, and looks for
    a CUDA device or shows one now.

    Raises UsageError, HostProblem, and PlanRefused for an image that does not look for ZLUDA.
    """
    from zluda_stack.engines.docker.run import require_zluda

    context.refuse_replay(ctx, verb)
    cache = paths.compiled_kernels()
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostProblem(
            f"cannot make {cache}: {error.strerror}", "Check the folder's owner and free space."
        ) from error
    require_zluda(planned)


def require_program(wish: Wish) -> None:
    """Raises UsageError for a program in the current folder that is not there."""
    name = wish.program[0]
    path = Path(name)
    if wish.folder is None or path.is_absolute() or "/" not in name or wish.image is not None:
        return  # only the container knows
    if not path.exists():
        raise UsageError(f"there is no {name} in {wish.folder}", "Give the program's path.")
    if not path.resolve().is_relative_to(wish.folder) and not _is_mounted(path, wish.mounts):
        raise UsageError(
            f"{name} leads out of the current folder, and only that is in the container",
            f"Add --mount {shlex.quote(str(path.resolve().parent))} and give the whole path.",
        )


def _is_mounted(path: Path, mounts: Iterable[Mount]) -> bool:
    return any(path.resolve().is_relative_to(mount.target) for mount in mounts)


def is_terminal() -> bool:
    """True when all three streams are one: with a terminal docker has no stderr of its own."""
    return all(stream and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def current_folder() -> Path:
    """The current folder. Raises UsageError when it is gone."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the current folder is gone", "Change to one that exists.") from error


def given_mount(text: str) -> Mount:
    """The value of one --mount. Raises UsageError."""
    from zluda_stack.plan.run import Mount

    parts = text.split(":")
    read_only = len(parts) > 1 and parts[-1] == "ro"
    if len(parts) > 1 and parts[-1] in ("ro", "rw"):
        parts.pop()
    if len(parts) > 2 or not all(parts):
        raise UsageError(f"--mount {text} is not SRC[:DST][:ro]", "Such as --mount data:/data:ro")
    source = Path(parts[0]).absolute()
    if not source.exists():
        raise UsageError(f"--mount: there is no {parts[0]}", "Make it first, or correct the path.")
    target = os.path.normpath(parts[1] if len(parts) == 2 else str(source))
    if not target.startswith("/") or target == "/":
        raise UsageError(
            f"--mount: {target} is no place in the container",
            "Give an absolute path, such as /data.",
        )
    return Mount(source=str(source), target=target, read_only=read_only)


def given_variable(text: str) -> tuple[str, str]:
    """Name and value of one --env; without a value it is this environment's, as docker has it.

    Raises UsageError.
    """
    name, given, value = text.partition("=")
    if not name.isidentifier():
        raise UsageError(f"--env {text} is not NAME or NAME=VALUE", "Such as --env THREADS=4")
    if not given and name not in os.environ:
        raise UsageError(f"--env {name}: your environment has no {name}", f"Give {name}=VALUE.")
    return name, value if given else os.environ[name]


def zluda_folder(given: str) -> str:
    """The folder that is meant by `given`: people name the library in it, too (case C28)."""
    path = Path(given).absolute()
    if path.name.startswith(_DRIVER):
        path = path.parent
        output.note(f"{given} is a library: its folder {path} is taken.")
    if not (path / _DRIVER).exists():
        raise UsageError(
            f"there is no {_DRIVER} in {path}", "Give the folder of ZLUDA that holds it."
        )
    return str(path)


def _print_command(planned: RunPlan) -> None:
    from zluda_stack.engines.docker.run import command

    output.say(shlex.join(command(planned)))
