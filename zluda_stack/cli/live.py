"""The running stack, as the commands for clients see it: where it is, and what it really has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, output
from zluda_stack.errors import EngineFailure, PlanRefused
from zluda_stack.program import as_typed, command

if TYPE_CHECKING:
    from zluda_stack.catalog.schema import Client
    from zluda_stack.render.clients import Connection
    from zluda_stack.verify.clients import Finding

check_option = click.option(
    "--check",
    is_flag=True,
    help="Ask the running stack for what this client needs; print no settings.",
)


def connection(ctx: click.Context, flags: dict[str, object]) -> Connection:
    """The connection to the stack that the settings name. Raises EngineFailure without one."""
    from zluda_stack import keys
    from zluda_stack.engines import saved_plan
    from zluda_stack.engines.common import never_started
    from zluda_stack.render import clients

    name = context.configured(ctx, flags).settings.name
    plan, key = saved_plan(name), keys.read_key(name)
    if plan is None or key is None:
        raise never_started(name)
    return clients.connection(plan, key)


def answers(to: Connection) -> bool:
    """True when the stack is up just now."""
    from zluda_stack.engines import saved_plan
    from zluda_stack.engines.common import answers

    plan = saved_plan(to.stack)
    return plan is not None and answers(plan.endpoint)


def require_answer(to: Connection) -> None:
    """Raises EngineFailure unless the stack is up."""
    if not answers(to):
        raise EngineFailure(
            f"the stack {to.stack} does not answer at {to.url}",
            f"`{command('up', to.stack)}` starts it.",
        )


def require_room(to: Connection, *, simple: bool) -> None:
    """Case C24: refuse a context that Claude Code's own prompt does not leave room in."""
    from zluda_stack.plan.clients import fits

    client = context.catalog().clients["claude"]
    mode = next(mode for mode in client.modes if mode.name == ("simple" if simple else "default"))
    problem = fits(client, mode, to.context)
    if problem is not None:
        raise PlanRefused(problem.message, problem.hint)


def check(to: Connection, clients: tuple[Client, ...], *, as_json: bool) -> None:
    """Tell what the running stack has of what `clients` need. Raises EngineFailure for a fault."""
    require_answer(to)
    found = {client.name: _findings(to, client, show=not as_json) for client in clients}
    if as_json:
        output.print_json(found)
    _require_no_fault(to, [one for findings in found.values() for one in findings])


def _findings(to: Connection, client: Client, *, show: bool) -> list[Finding]:
    from zluda_stack.verify import clients

    if show:
        output.heading(f"{client.title} at {to.url}")
    findings = []
    for finding in clients.run(to.url, to.key, client):
        findings.append(finding)
        if show:
            mark = {"ok": "✓", "limit": "-", "fault": "✗"}[finding.verdict.value]
            output.say(f"{mark} {finding.name}: {as_typed(finding.told)} ({finding.seconds:.1f} s)")
    return findings


def _require_no_fault(to: Connection, findings: list[Finding]) -> None:
    faults = [one for one in findings if one.verdict.value == "fault"]
    if faults:
        raise EngineFailure(
            f"the endpoint does not do what this client needs: {faults[0].name}: {faults[0].told}",
            f"`{command('logs', to.stack)}` shows what it wrote.",
        )
