"""The running stack, as the commands for clients see it: where it is, and what it really has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, output
from zluda_stack.errors import EngineFailure, PlanRefused
from zluda_stack.program import as_typed, command

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from zluda_stack.catalog.schema import Client, ClientMode
    from zluda_stack.plan.types import EndpointPlan, Plan
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
    return clients.connection(plan, key, _bundle(plan))


def _bundle(plan: Plan) -> str | None:
    """The file of all that this user's programs and the endpoint's clients trust; None for HTTP."""
    from zluda_stack import paths, tls

    if plan.endpoint.tls is None:
        return None
    file = paths.stack(plan.name) / "ca-bundle.pem"
    tls.write_bundle(plan.endpoint.tls.certificate, file, os.environ)
    return str(file)


def answering(to: Connection) -> EndpointPlan | None:
    """The endpoint of the stack, None unless it is up just now."""
    from zluda_stack.engines import saved_plan
    from zluda_stack.engines.common import answers

    plan = saved_plan(to.stack)
    return plan.endpoint if plan is not None and answers(plan.endpoint) else None


def require_answer(to: Connection) -> EndpointPlan:
    """The endpoint of the stack. Raises EngineFailure unless it is up."""
    endpoint = answering(to)
    if endpoint is None:
        raise EngineFailure(
            f"the stack {to.stack} does not answer at {to.url}",
            f"`{command('up', to.stack)}` starts it.",
        )
    return endpoint


def mode_of(client: Client, *, simple: bool) -> ClientMode:
    """The mode in which `client` is used: that of --simple, or its first."""
    if not simple:
        return client.modes[0]
    return next(mode for mode in client.modes if mode.name == "simple")


def require_room(to: Connection, *, simple: bool) -> None:
    """Case C24: refuse a context that Claude Code's own prompt does not leave room in."""
    from zluda_stack.plan.clients import fits

    client = context.catalog().clients["claude"]
    problem = fits(client, mode_of(client, simple=simple), to.context)
    if problem is not None:
        raise PlanRefused(problem.message, problem.hint)


def check(
    to: Connection, clients: tuple[Client, ...], *, as_json: bool, simple: bool = False
) -> None:
    """Tell what the running stack has of what `clients` need. Raises EngineFailure for a fault."""
    endpoint = require_answer(to)
    found = {}
    for client in clients:
        if not as_json:
            output.heading(f"{client.title} at {to.url}")
        mode = mode_of(client, simple=simple)
        found[client.name] = _findings(endpoint, to.key, client, mode, show=not as_json)
    if as_json:
        output.print_json(found)
    _require_no_fault(to, [one for findings in found.values() for one in findings])


def _findings(
    endpoint: EndpointPlan, key: str, client: Client, mode: ClientMode, *, show: bool
) -> list[Finding]:
    from zluda_stack.verify import clients

    def around(name: str) -> AbstractContextManager[None]:
        return output.waiting(f"asking the endpoint: {name} ...")

    findings = []
    for finding in clients.run(endpoint, key, client, mode, around):
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
