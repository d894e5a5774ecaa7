"""`up`, `down`, `restart`, `status`, `logs`: the life of a stack."""

from __future__ import annotations

import contextlib
import shlex
from typing import TYPE_CHECKING

import click

from zluda_stack import keys, paths
from zluda_stack.cli import build_cost, coding, context, download, output, replacing
from zluda_stack.cli.options import dry_run_option, json_option, settings_options, yes_option
from zluda_stack.errors import EngineFailure, ExitCode, Interrupted
from zluda_stack.program import as_typed, command
from zluda_stack.units import megabytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from zluda_stack.engines.base import Engine, StackStatus
    from zluda_stack.engines.docker.estimate import BuildCost
    from zluda_stack.plan.types import Plan
    from zluda_stack.verify.selftest import Check

# All that `status` shows of the logs of what crashed; `logs` shows the rest.
_LOG_LINES = 10

_all_option = click.option("--all", "every", is_flag=True, help="Every stack of this user.")
_selftest_option = click.option(
    "--selftest/--no-selftest",
    default=True,
    help="Prove with real requests that the endpoint answers (the default).",
)


@click.command()
@settings_options()
@_selftest_option
@yes_option
@dry_run_option
@json_option
@click.pass_context
def up(
    ctx: click.Context,
    flags: dict[str, object],
    *,
    selftest: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Start the stack and prove that it answers.

    A stack that already runs as planned and is healthy is left alone. What other settings change
    of one that runs is said before.
    """
    from zluda_stack.engines import engine_for, require_same_engine
    from zluda_stack.own_files import require_usable
    from zluda_stack.plan.resolve import require_runnable

    with _hint_on_interrupt(flags):
        plan = _plan(ctx, flags, dry_run=dry_run)
        (output.note if as_json else output.heading)(plan.headline)
        for warning in plan.warnings:
            output.warn(warning.message, warning.hint)
        require_runnable(plan)
        if not context.is_replay(ctx):
            require_usable(plan)
        engine = engine_for(plan.engine)
        before = None if context.is_replay(ctx) else replacing.replaced(plan, engine)
        if before is not None:
            replacing.warn(before, plan)
        if dry_run:
            is_up = not context.is_replay(ctx) and engine.is_up(plan)
            cost = None if is_up else build_cost.of(ctx, plan)
            _print_dry_run(plan, engine, cost, is_up=is_up, as_json=as_json)
            return
        context.refuse_replay(ctx, "up")
        require_same_engine(plan)
        if before is not None:
            replacing.agree(before, plan, yes=yes)
        download.agree(plan, yes=yes, show=not as_json)
        agree_to_build(plan, yes=yes, show=not as_json)
        _start(plan, engine, selftest=selftest, as_json=as_json)


@click.command()
@settings_options("name")
@_selftest_option
@dry_run_option
@json_option
@click.pass_context
def restart(
    ctx: click.Context, flags: dict[str, object], *, selftest: bool, dry_run: bool, as_json: bool
) -> None:
    """Stop the stack and start it as it was."""
    from zluda_stack.engines import claims, engine_for, saved_plan
    from zluda_stack.own_files import require_usable

    if not dry_run:
        context.refuse_replay(ctx, "restart")
    with _hint_on_interrupt(flags):
        name = context.configured(ctx, flags).settings.name
        plan = saved_plan(name)
        if plan is None:
            raise _nothing_to_restart(name)
        engine = engine_for(plan.engine)
        (output.note if as_json else output.heading)(plan.headline)
        require_usable(plan)
        if dry_run:
            if not as_json:
                output.say(f"# stop {name}")
            _print_dry_run(plan, engine, None, is_up=False, as_json=as_json)
            return
        ctx.with_resource(claims.claim(name, plan.endpoint.port))
        with output.progress() as progress:
            engine.down(name, progress)
        _start(plan, engine, selftest=selftest, as_json=as_json)


@click.command()
@settings_options("name")
@_all_option
@click.option(
    "--volumes", is_flag=True, help="Remove a container stack's model copy and kernel cache too."
)
@dry_run_option
@json_option
@click.pass_context
def down(
    ctx: click.Context,
    flags: dict[str, object],
    *,
    every: bool,
    volumes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Stop the stack. Its API key and the models stay."""
    from zluda_stack.engines import engine_of, stack_names

    if not dry_run:
        context.refuse_replay(ctx, "down")
    stopped: dict[str, bool] = {}
    with _hint_on_interrupt(flags):
        names = stack_names() if every else [context.stack_name(flags)]
        if dry_run:
            _print_dry_down(names, volumes=volumes, as_json=as_json)
            return
        with output.progress() as progress:
            for name in names:
                stopped[name] = engine_of(name).down(name, progress, volumes=volumes)
    if as_json:
        output.print_json({"stopped": stopped})
        return
    for name, was_there in stopped.items():
        output.say(f"{name} is stopped." if was_there else f"{name} was not running.")
    if not stopped:
        output.say("There is no stack.")


@click.command()
@settings_options("name")
@_all_option
@json_option
@click.pass_context
def status(ctx: click.Context, flags: dict[str, object], *, every: bool, as_json: bool) -> None:
    """Show what runs and whether it answers.

    The exit code is 0 only when the stack is healthy, else 5; with --all, when no stack that
    was started and not stopped is unhealthy.
    """
    from zluda_stack.engines import engine_of, stack_names
    from zluda_stack.engines.base import State

    names = stack_names() if every else [context.stack_name(flags)]
    found = [_with_requests(engine_of(name).status(name)) for name in names]
    if as_json:
        output.print_json(found if every else found[0])
    elif every:
        _print_all(found)
    else:
        _print_one(found[0])
    stopped_is_fine = every
    if not all(one.healthy or (stopped_is_fine and one.state is State.STOPPED) for one in found):
        ctx.exit(ExitCode.ENGINE)


@click.command()
@settings_options("name")
@click.option("-f", "--follow", is_flag=True, help="Go on as more is written; Ctrl-C ends it.")
@click.option(
    "--tail",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    metavar="N",
    help="Begin with the last N lines of each service.",
)
@click.argument("service", required=False)
@click.pass_context
def logs(
    ctx: click.Context, flags: dict[str, object], service: str | None, *, tail: int, follow: bool
) -> None:
    """Show what the services wrote, or only SERVICE."""
    from zluda_stack.engines import engine_of

    try:
        name = context.stack_name(flags)
        for line in engine_of(name).logs(name, service, tail, follow=follow):
            output.say(line)
    except KeyboardInterrupt:
        if not follow:
            raise
        ctx.exit(ExitCode.INTERRUPTED)  # the way to end it, so nothing to complain of


@contextlib.contextmanager
def _hint_on_interrupt(flags: Mapping[str, object]) -> Iterator[None]:
    """On Ctrl-C that no engine was there to answer, say how to see what runs."""
    try:
        yield
    except KeyboardInterrupt:
        name = str(flags.get("name", "default"))
        raise Interrupted("interrupted", f"`{command('status', name)}` shows what runs.") from None


def _plan(ctx: click.Context, flags: dict[str, object], *, dry_run: bool) -> Plan:
    """The plan; its port is kept for it until this command ends."""
    from zluda_stack.cli.plan import resolve
    from zluda_stack.engines import claims

    if dry_run:
        return resolve(ctx, flags)
    with claims.choosing():
        plan = resolve(ctx, flags)
        ctx.with_resource(claims.claim(plan.name, plan.endpoint.port))
    return plan


def _nothing_to_restart(name: str) -> EngineFailure:
    """Why a stack without a readable plan cannot be started as it was."""
    from zluda_stack.engines import engine_of
    from zluda_stack.engines.base import State
    from zluda_stack.engines.common import never_started

    if engine_of(name).status(name).state is State.STOPPED:
        return never_started(name)
    return EngineFailure(
        f"the stack {name} is there, but its plan.json is damaged or of another version",
        f"`{command('up', name)}` starts it anew, on the same port.",
    )


def _start(plan: Plan, engine: Engine, *, selftest: bool, as_json: bool) -> None:
    """Bring the stack up, prove that it answers, say how to use it."""
    before = engine.status(plan.name)
    with output.progress() as progress:
        after = engine.up(plan, progress)
    untouched = before.healthy and before.services == after.services
    with _left_running(plan):
        tested = selftest and not untouched
        checks = _self_test(plan, show=not as_json) if tested else ()
        found = coding.look(plan, show=not as_json) if tested else ()
    if as_json:
        facts = {"status": after, "already_running": untouched, "self_test": checks}
        output.print_json({**facts, "coding": found})
    else:
        _print_ready(plan, untouched=untouched)


@contextlib.contextmanager
def _left_running(plan: Plan) -> Iterator[None]:
    """On Ctrl-C while the stack is tested, say that it runs."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; the stack {plan.name} is left running, not fully tested",
            f"`{command('down', plan.name)}` stops it.",
        ) from None


def agree_to_build(plan: Plan, *, yes: bool, show: bool) -> None:
    """Say what building the plan's images takes, and have the user agree to much."""
    if plan.engine != "docker":
        return
    from zluda_stack.cli.build import agree
    from zluda_stack.engines.docker import containers
    from zluda_stack.engines.docker.served import served_images
    from zluda_stack.engines.docker.supply import survey

    with containers.connect() as client:
        agree(client, survey(client, plan, served_images(plan)), yes=yes, show=show)


def _self_test(plan: Plan, *, show: bool) -> tuple[Check, ...]:
    """Ask the endpoint real questions. Raises EngineFailure unless every answer is right."""
    from zluda_stack.verify import selftest

    with output.progress() as progress:
        progress.step("asking the model in both dialects")
        key = keys.ensure_key(plan.name)
        checks = tuple(
            check for name in plan.served for check in selftest.run(plan.endpoint, key, name)
        )
    if show:
        for check in checks:
            of = f" of {check.model}" if plan.others else ""
            mark, told = ("✓", check.text) if check.ok else ("✗", check.detail)
            output.say(f"{mark} {check.name}{of} ({check.seconds:.1f} s): {' '.join(told.split())}")
    failed = [check for check in checks if not check.ok]
    if failed:
        raise EngineFailure(
            f"the self-test failed: {failed[0].name}: {failed[0].detail}",
            f"The stack is left running; `{command('logs', plan.name)}` shows what it wrote.",
        )
    return checks


def _print_ready(plan: Plan, *, untouched: bool) -> None:
    verb = "Already running" if untouched else "Running"
    output.say(f"{verb}: {plan.endpoint.url} serves {' and '.join(plan.served)}")
    if plan.page is not None:
        output.say(f"Its page: {plan.page.url}")
    output.say()
    next_steps = {
        f'eval "$({command("connect env", plan.name)})"': "point your tools at it",
        command("logs -f", plan.name): "see what it does",
        command("down", plan.name): "stop it",
    }
    width = max(map(len, next_steps))
    for line, purpose in next_steps.items():
        output.say(f"  {line:{width}}  # {purpose}")


def _print_dry_run(
    plan: Plan, engine: Engine, build: BuildCost | None, *, is_up: bool, as_json: bool
) -> None:
    """Print the exact commands of `up`, the download of the model first where it is needed.

    `build` is what its images cost, None when nothing has to be built. A container stack fetches
    its model in a container.
    """
    from zluda_stack.models.store import Store

    model = plan.model.catalogued if plan.engine == "embedded" and not is_up else None
    pull = () if model is None else Store(paths.model_store()).pull_commands(model)
    commands = () if is_up else engine.commands(plan)
    if as_json:
        facts = {"already_running": is_up, "download": pull, "commands": commands}
        output.print_json({**facts, "build": build})
        return
    if is_up:
        output.say(f"{plan.endpoint.url} runs as planned and is healthy: nothing would be done.")
    if build is not None:
        output.say(f"# {as_typed(build_cost.line(build, plan))}")
    if model is not None and pull:
        size = "" if model.size is None else f" ({megabytes(model.size)})"
        output.say(f"# fetch the model {model.name}{size}")
    for line in (*pull, *commands):
        output.say(shlex.join(line))


def _print_dry_down(names: list[str], *, volumes: bool, as_json: bool) -> None:
    from zluda_stack.engines import engine_of
    from zluda_stack.engines.base import State

    runs = {name: engine_of(name).status(name).state is not State.STOPPED for name in names}
    if as_json:
        output.print_json({"would_stop": runs, "remove_volumes": volumes})
        return
    for name, is_there in runs.items():
        output.say(f"{name} would be stopped." if is_there else f"{name} is not running.")
        if volumes:
            output.say(f"The volumes of {name} would be removed, where it has any.")


def _with_requests(status: StackStatus) -> StackStatus:
    """`status` with what the endpoint is answering, where it answers."""
    from msgspec import structs

    from zluda_stack.engines import saved_plan
    from zluda_stack.engines.busy import requests_at

    plan = saved_plan(status.name) if status.healthy else None
    if plan is None:
        return status
    return structs.replace(status, requests=requests_at(plan.endpoint, status.name))


def _print_one(status: StackStatus) -> None:
    health = "answers" if status.healthy else "does not answer"
    output.heading(f"{status.name}: {status.state.value}, {health}")
    if status.url is not None:
        output.say(f"{status.url} serves {status.model} with a context of {status.context} tokens")
    if status.device is not None:
        output.say(f"computes on {status.device}")
    if status.requests is not None:
        now = status.requests
        places = "" if now.places is None else f" ({now.places} at a time)"
        output.say(f"requests now: {now.running} computed{places}, {now.waiting} waiting")
    if status.services:
        output.table(
            ("service", "state", "pid", "exit status"),
            [
                (one.name, one.state.value, _or_dash(one.pid), _or_dash(one.exit_status))
                for one in status.services
            ],
        )
    if not status.healthy:
        output.say(f"`{command('up', status.name)}` starts it.")
    told = [service for service in status.services if service.log_tail]
    for service in told:
        for line in service.log_tail[-max(1, _LOG_LINES // len(told)) :]:
            output.say(f"{service.name}: {line}")


def _print_all(found: list[StackStatus]) -> None:
    if not found:
        output.say("There is no stack.")
        return
    output.table(
        ("name", "engine", "state", "healthy", "url", "model", "folder"),
        [
            (
                one.name,
                one.engine,
                one.state.value,
                "yes" if one.healthy else "no",
                _or_dash(one.url),
                _or_dash(one.model),
                str(paths.stack(one.name)),
            )
            for one in found
        ],
    )


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)
