"""`zluda-stack precompile`: the kernels of a program or the stack, ahead of their first use."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import structs

from zluda_stack import paths
from zluda_stack.cli import context, output
from zluda_stack.cli.options import ImageName, dry_run_option, settings_options
from zluda_stack.cli.run import card_plan, is_terminal, ready, wish_for, zluda_folder
from zluda_stack.errors import EngineFailure, ExitCode, HostProblem, UsageError

if TYPE_CHECKING:
    from zluda_stack.plan.run import RunPlan, Wish

_TOOL = "/opt/zluda/zluda_precompile"
_SERVER_LIBRARY = "/opt/llama/libggml-cuda.so"


@click.command()
@settings_options("name", "gpu", "passthrough", "hsa_override")
@click.argument("path", required=False, metavar="[PATH]")
@click.option("--stack", is_flag=True, help="Compile for the stack's model server instead.")
@click.option("--zluda", metavar="DIR", help="A ZLUDA of yours in the place of the image's.")
@click.option(
    "--image", type=ImageName(), metavar="IMAGE", help="An inference image other than the planned."
)
@dry_run_option
@click.pass_context
def precompile(
    ctx: click.Context,
    flags: dict[str, object],
    *,
    path: str | None,
    stack: bool,
    zluda: str | None,
    image: str | None,
    dry_run: bool,
) -> None:
    """Compile the kernels of a program or folder ahead of its first `run`.

    It needs the GPU: ZLUDA compiles for the card that is there, and keeps the result by the
    card's name and clock. It uses all processors, and may compile more than the program calls.
    """
    if stack == (path is not None):
        raise UsageError(
            "precompile takes a PATH or --stack", "Such as: zluda-stack precompile ./program"
        )
    if stack:
        _for_stack(ctx, flags, dry_run=dry_run)
    else:
        own_zluda = None if zluda is None else zluda_folder(zluda)
        wish = structs.replace(_wish(Path(path or "")), zluda=own_zluda, image=image)
        _for_program(ctx, flags, wish, dry_run=dry_run)


def _wish(path: Path) -> Wish:
    """ZLUDA's tool on `path`, which is all that it sees of this machine."""
    from zluda_stack.plan.run import Mount

    if not path.exists():
        raise UsageError(f"there is no {path}", "Give a program, a library or a folder of them.")
    whole = str(path.resolve())
    mount = Mount(source=whole, target=whole, read_only=True)
    return structs.replace(wish_for((_TOOL, whole)), folder=None, mounts=(mount,))


def _for_program(
    ctx: click.Context, flags: dict[str, object], wish: Wish, *, dry_run: bool
) -> None:
    from zluda_stack.plan.run import run_plan

    try:
        plan = card_plan(ctx, flags)
    except HostProblem as lack:
        message = f"kernels are compiled on the GPU that they are for: {lack.message}"
        raise HostProblem(message, lack.hint) from lack
    planned = run_plan(plan, wish)
    if dry_run:
        from zluda_stack.engines.docker.run import command

        output.say(shlex.join(command(planned)))
        return
    ready(ctx, "precompile", planned)
    _compile(planned)


def _compile(planned: RunPlan) -> None:
    """Compile, and say what came of it: the tool itself is silent on what fails."""
    from zluda_stack.apps.kernel_cache import modules_in
    from zluda_stack.engines.docker.run import command

    cache = paths.compiled_kernels()
    before = modules_in(cache)
    _require_success(command(planned))
    after = modules_in(cache)
    output.say(f"{after - before} modules were compiled; {after} are kept in {cache}")
    if after == before:
        output.warn(
            "nothing new was compiled",
            "Either all was there before, or ZLUDA can compile nothing of it: `zluda-stack check` "
            "says which.",
        )


def _for_stack(ctx: click.Context, flags: dict[str, object], *, dry_run: bool) -> None:
    """In each model server's own container setting, whose volume keeps the result."""
    from zluda_stack.engines import saved_plan
    from zluda_stack.engines.common import never_started
    from zluda_stack.engines.docker import compose
    from zluda_stack.engines.docker.state import StackFolder
    from zluda_stack.plan.profiles import traits

    name = context.stack_name(flags)
    plan = saved_plan(name)
    if plan is None:
        raise never_started(name)
    if plan.gpu is None:
        raise UsageError(
            f"the stack {name} computes on the CPU, and kernels are for a GPU",
            "Name another with --name, or start one on a card.",
        )
    if not traits(plan.profile).translates:
        raise UsageError(
            f"the stack {name} is of the {plan.profile} profile: its kernels came with its image",
            "There is nothing to do.",
        )
    file = compose.compose_file(StackFolder(paths.stack(name)))
    terminal = () if is_terminal() else ("-T",)
    for service in plan.services:
        if service.build != "inference":
            continue
        words = ("run", "--rm", "--no-deps", *terminal, service.name, _TOOL, _SERVER_LIBRARY)
        line = compose.command(name, file, *words)
        if dry_run:
            output.say(shlex.join(line))
            continue
        context.refuse_replay(ctx, "precompile")
        _require_success(line)
        output.say(f"{service.name}: done; the stack's volume keeps what was compiled")


def _require_success(line: tuple[str, ...]) -> None:
    """Run `line` with the user's terminal, on which the tool draws its bar.

    Elsewhere it shows nothing for minutes, so a line every few seconds says that it works.
    Raises HostProblem when the card shows no CUDA device, EngineFailure for another end.
    """
    from zluda_stack.engines.common import PROGRESS_SECONDS
    from zluda_stack.engines.docker.run import alive

    def still(seconds: int) -> None:
        output.note(f"compiling kernels ... {seconds} s")

    if not is_terminal():
        output.note("compiling kernels; the first time this takes minutes")
    code = alive(line, PROGRESS_SECONDS, None if is_terminal() else still)
    if code == ExitCode.HOST:  # that of the entrypoint `on-gpu`, which has said why
        raise HostProblem(
            "nothing was compiled, since the card shows no CUDA device", "See the lines above."
        )
    if code != 0:
        raise EngineFailure(
            f"{_TOOL.rpartition('/')[2]} ended with exit code {code}",
            "See the lines above. What was compiled until then is kept.",
        )
