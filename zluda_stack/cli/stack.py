"""`up`, `down`, `restart`, `status`, `logs`: the life of a stack."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from zluda_stack import keys, paths
from zluda_stack.cli import context, output
from zluda_stack.cli.options import dry_run_option, json_option, settings_options, yes_option
from zluda_stack.errors import EngineFailure, ExitCode

if TYPE_CHECKING:
    from zluda_stack.engines.base import Engine, StackStatus
    from zluda_stack.plan.types import Plan
    from zluda_stack.verify.selftest import Check

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

    A stack that already runs as planned and is healthy is left alone.
    """
    from zluda_stack.cli.plan import resolve
    from zluda_stack.engines import engine_for, require_same_engine
    from zluda_stack.plan.resolve import require_runnable

    plan = resolve(ctx, flags)
    (output.note if as_json else output.heading)(plan.headline)
    for warning in plan.warnings:
        output.warn(warning.message, warning.hint)
    require_runnable(plan)
    engine = engine_for(plan.engine)
    if dry_run:
        _print_dry_run(plan, engine, as_json=as_json)
        return
    context.refuse_replay(ctx, "up")
    require_same_engine(plan)
    _agree_to_build(plan, yes=yes, show=not as_json)
    _start(plan, engine, selftest=selftest, as_json=as_json)


@click.command()
@settings_options("name")
@_selftest_option
@json_option
@click.pass_context
def restart(ctx: click.Context, flags: dict[str, object], *, selftest: bool, as_json: bool) -> None:
    """Stop the stack and start it as it was."""
    from zluda_stack.engines import engine_for, saved_plan

    name = context.configured(ctx, flags).settings.name
    plan = saved_plan(name)
    if plan is None:
        raise EngineFailure(
            f"no stack {name} was started before", f"`{_command('up', name)}` starts it."
        )
    engine = engine_for(plan.engine)
    (output.note if as_json else output.heading)(plan.headline)
    with output.progress() as progress:
        engine.down(name, progress)
    _start(plan, engine, selftest=selftest, as_json=as_json)


@click.command()
@settings_options("name")
@_all_option
@click.option(
    "--volumes", is_flag=True, help="Remove a container stack's model copy and kernel cache too."
)
@json_option
@click.pass_context
def down(
    ctx: click.Context, flags: dict[str, object], *, every: bool, volumes: bool, as_json: bool
) -> None:
    """Stop the stack. Its API key and the models stay."""
    from zluda_stack.engines import engine_of, stack_names

    names = stack_names() if every else [context.configured(ctx, flags).settings.name]
    stopped: dict[str, bool] = {}
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

    names = stack_names() if every else [context.configured(ctx, flags).settings.name]
    found = [engine_of(name).status(name) for name in names]
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

    name = context.configured(ctx, flags).settings.name
    for line in engine_of(name).logs(name, service, tail, follow=follow):
        output.say(line)


def _start(plan: Plan, engine: Engine, *, selftest: bool, as_json: bool) -> None:
    """Bring the stack up, prove that it answers, say how to use it."""
    before = engine.status(plan.name)
    with output.progress() as progress:
        after = engine.up(plan, progress)
    untouched = before.healthy and before.services == after.services
    checks = () if untouched or not selftest else _self_test(plan, show=not as_json)
    if as_json:
        output.print_json({"status": after, "already_running": untouched, "self_test": checks})
    else:
        _print_ready(plan, untouched=untouched)


def _agree_to_build(plan: Plan, *, yes: bool, show: bool) -> None:
    """Say what building the plan's images takes, and have the user agree to much."""
    if plan.engine != "docker":
        return
    from zluda_stack.cli.build import agree
    from zluda_stack.engines.docker import containers
    from zluda_stack.engines.docker.change import served_images

    with containers.connect() as client:
        agree(client, served_images(plan), yes=yes, show=show)


def _self_test(plan: Plan, *, show: bool) -> tuple[Check, ...]:
    """Ask the endpoint real questions. Raises EngineFailure unless every answer is right."""
    from zluda_stack.verify import selftest

    with output.progress() as progress:
        progress.step("asking the model in both dialects")
        checks = selftest.run(plan.endpoint.url, keys.ensure_key(plan.name), plan.model.name)
    if show:
        for check in checks:
            mark, told = ("✓", check.text) if check.ok else ("✗", check.detail)
            output.say(f"{mark} {check.name} ({check.seconds:.1f} s): {' '.join(told.split())}")
    failed = [check for check in checks if not check.ok]
    if failed:
        raise EngineFailure(
            f"the self-test failed: {failed[0].name}: {failed[0].detail}",
            f"The stack is left running; `{_command('logs', plan.name)}` shows what it wrote.",
        )
    return checks


def _print_ready(plan: Plan, *, untouched: bool) -> None:
    verb = "Already running" if untouched else "Running"
    output.say(f"{verb}: {plan.endpoint.url} serves {plan.model.name}")
    output.say()
    next_steps = {
        f'eval "$({_command("connect env", plan.name)})"': "point your tools at it",
        _command("logs -f", plan.name): "see what it does",
        _command("down", plan.name): "stop it",
    }
    width = max(map(len, next_steps))
    for command, purpose in next_steps.items():
        output.say(f"  {command:{width}}  # {purpose}")


def _print_dry_run(plan: Plan, engine: Engine, *, as_json: bool) -> None:
    """Print the exact commands of `up`, the download of the model first where it is needed.

    A container stack fetches its model in a container.
    """
    from zluda_stack.models.store import Store

    model = plan.model.catalogued if plan.engine == "embedded" else None
    pull = () if model is None else Store(paths.model_store()).pull_commands(model)
    commands = engine.commands(plan)
    if as_json:
        output.print_json({"download": pull, "commands": commands})
        return
    if model is not None and pull:
        size = "" if model.size is None else f" ({output.megabytes(model.size)})"
        output.say(f"# fetch the model {model.name}{size}")
    for command in (*pull, *commands):
        output.say(shlex.join(command))


def _print_one(status: StackStatus) -> None:
    health = "answers" if status.healthy else "does not answer"
    output.heading(f"{status.name}: {status.state.value}, {health}")
    if status.url is not None:
        output.say(f"{status.url} serves {status.model} with a context of {status.context} tokens")
    if status.device is not None:
        output.say(f"computes on {status.device}")
    if status.services:
        output.table(
            ("service", "state", "pid", "exit status"),
            [
                (one.name, one.state.value, _or_dash(one.pid), _or_dash(one.exit_status))
                for one in status.services
            ],
        )
    for service in status.services:
        for line in service.log_tail:
            output.say(f"{service.name}: {line}")
    if not status.healthy:
        output.say(f"`{_command('up', status.name)}` starts it.")


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


def _command(verb: str, name: str) -> str:
    return f"zluda-stack {verb}" + ("" if name == "default" else f" --name {name}")


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)
