"""What the commands of the toolbox share: the container that a tool runs in."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from zluda_stack.cli import context, output
from zluda_stack.cli.run import current_folder, given_mount, given_variable, is_terminal
from zluda_stack.errors import HostProblem

if TYPE_CHECKING:
    from zluda_stack.host.facts import HostFacts
    from zluda_stack.plan.run import RunPlan
    from zluda_stack.plan.toolbox import ToolWish

_OPTIONS = "zluda_stack.toolbox"


class Options(Struct, frozen=True, kw_only=True):
    """What was given before the tool's name; `flags` are the settings."""

    flags: dict[str, object]
    mounts: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    image: str | None = None
    no_cwd: bool = False
    dry_run: bool = False


def remember(ctx: click.Context, options: Options) -> None:
    """Keep `options` for the tool that comes next on this command line."""
    ctx.meta[_OPTIONS] = options


def options_of(ctx: click.Context) -> Options:
    """What was given before the tool that runs now."""
    found: Options = ctx.meta[_OPTIONS]
    return found


def container(ctx: click.Context, command: tuple[str, ...]) -> RunPlan:
    """The container for `command`: the user's folder, and a card if there is one to be had.

    Raises UsageError, PlanRefused, HostProblem.
    """
    from zluda_stack.plan.toolbox import (
        misses_target,
        needs_card,
        reach,
        tool_command,
        toolbox_image,
    )

    options = options_of(ctx)
    configured, catalog = context.configured(ctx, options.flags), context.catalog()
    facts = context.facts(ctx, configured.settings)
    reached = reach(facts, configured, catalog)
    plan = tool_command(
        toolbox_image(catalog, configured.settings),
        facts,
        reached,
        _with_folder(_wish(command), options),
        options.image,
    )
    if reached.lack is not None and needs_card(command):
        output.warn(f"no card gets into the toolbox: {reached.lack.message}", reached.lack.hint)
    if misses_target(command, reached):
        output.note("no card is here, so hipcc compiles for a default of its own")
        output.note("hint: --gpu gfx1100 before hipcc names a card's target")
    _require_engine(facts, options)
    return plan


def lone_container(ctx: click.Context, command: tuple[str, ...]) -> RunPlan:
    """The container for `command`, which sees nothing of this machine but its stdin.

    Raises UsageError, PlanRefused, HostProblem.
    """
    from zluda_stack.plan.toolbox import Reach, tool_command, toolbox_image

    options = options_of(ctx)
    configured, catalog = context.configured(ctx, options.flags), context.catalog()
    facts = context.facts(ctx, configured.settings)
    image = toolbox_image(catalog, configured.settings)
    _require_engine(facts, options)
    return tool_command(image, facts, Reach(), _wish(command), options.image)


def run(ctx: click.Context, command: tuple[str, ...]) -> None:
    """Become `command` in the toolbox, or print how with --dry-run. Raises as `container` does."""
    plan = container(ctx, command)
    if options_of(ctx).dry_run:
        print_command(plan)
        return
    require_image(ctx, plan)
    from zluda_stack.engines.docker.run import replace_this_process

    replace_this_process(plan)


def require_image(ctx: click.Context, plan: RunPlan) -> None:
    """Return when the engine of this machine has the toolbox. Raises UsageError, HostProblem."""
    from zluda_stack.engines.docker import run as docker_run

    context.refuse_replay(ctx, "toolbox")
    docker_run.require_image(plan)


def print_command(plan: RunPlan) -> None:
    """The `docker run` of `plan`, quoted for a shell."""
    output.say(shlex.join(command_of(plan)))


def command_of(plan: RunPlan) -> tuple[str, ...]:
    """The `docker run` of `plan`."""
    from zluda_stack.engines.docker.run import command

    return command(plan)


def _wish(command: tuple[str, ...]) -> ToolWish:
    from zluda_stack.plan.toolbox import ToolWish

    return ToolWish(
        command=command, uid=os.getuid(), gid=os.getgid(), home=str(Path.home().resolve())
    )


def _with_folder(wish: ToolWish, options: Options) -> ToolWish:
    from msgspec import structs

    return structs.replace(
        wish,
        folder=None if options.no_cwd else str(current_folder()),
        mounts=tuple(map(given_mount, options.mounts)),
        environment=wish.environment | dict(map(given_variable, options.environment)),
        terminal=is_terminal(),
    )


def _require_engine(facts: HostFacts, options: Options) -> None:
    """Raises HostProblem when the engine cannot start anything; a dry run needs none."""
    from zluda_stack.plan.engine_needs import engine_needs
    from zluda_stack.plan.gpu_reach import for_no_server

    if options.dry_run:
        return
    for need in for_no_server(engine_needs(facts, "docker", context.catalog().host)):
        raise HostProblem(need.message, need.hint)
