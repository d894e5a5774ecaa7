"""`zluda-stack plan`: what would happen, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zluda_stack.cli import build_cost, context, output
from zluda_stack.cli.options import json_option, settings_options
from zluda_stack.program import as_typed

if TYPE_CHECKING:
    from zluda_stack.plan.types import Plan


@click.command()
@settings_options()
@json_option
@click.pass_context
def plan(ctx: click.Context, flags: dict[str, object], *, as_json: bool) -> None:
    """Show what `up` would do on this machine, and why. Nothing is started or built."""
    from zluda_stack.plan.types import to_json

    resolved = with_own_files(ctx, resolve(ctx, flags))
    if as_json:
        click.echo(to_json(resolved).decode(), nl=False)
    else:
        _print(resolved)
        _print_build(ctx, resolved)


def resolve(ctx: click.Context, flags: dict[str, object]) -> Plan:
    """The plan for this run's settings and host. Raises UsageError, PlanRefused."""
    from zluda_stack.plan.resolve import resolve as decide

    configured = context.configured(ctx, flags)
    return decide(context.facts(ctx, configured.settings), configured, context.catalog())


def with_own_files(ctx: click.Context, plan: Plan) -> Plan:
    """`plan` with what is wrong with its user's own files, which no facts of a machine hold."""
    if context.is_replay(ctx):
        return plan
    from msgspec import structs

    from zluda_stack.own_files import lacks

    return structs.replace(plan, unmet=(*plan.unmet, *lacks(plan)))


def _print_build(ctx: click.Context, plan: Plan) -> None:
    cost = build_cost.at_a_glance(ctx, plan)
    if cost is not None:
        output.say(as_typed(build_cost.line(cost, plan)))


def _print(plan: Plan) -> None:
    output.heading(plan.headline)
    output.say()
    decided = [(each.what, each.value, each.because) for each in plan.decisions]
    output.table(("what", "value", "why"), decided)
    output.say()
    output.say(f"endpoint: {plan.endpoint.url}")
    for skipped in plan.skipped:
        output.say(f"skipped: {skipped.gpu}: {skipped.reason}")
    for warning in plan.warnings:
        output.say(f"warning: {warning.message}")
        output.say(f"hint: {as_typed(warning.hint)}")
    for need in plan.unmet:
        output.say(f"this machine lacks: {need.message}")
        output.say(f"hint: {as_typed(need.hint)}")
