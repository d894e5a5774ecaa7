"""Whether the model that runs is one to write code with, seen by real requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda_stack import keys
from zluda_stack.cli import context, output
from zluda_stack.program import as_typed

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from zluda_stack.catalog.schema import Client
    from zluda_stack.plan.types import Plan
    from zluda_stack.verify.clients import Finding

_LOOKED_FOR = ("tools", "context")
_MARKS = {"ok": "✓", "limit": "-", "fault": "✗"}


def look(plan: Plan, *, show: bool) -> tuple[Finding, ...]:
    """Whether the model calls tools, and whether its context holds a coding client's prompt.

    Asked for the client that the plan is for, else for Claude Code. A model that cannot is no
    failure: there is other use for it.
    """
    from zluda_stack.plan.clients import CODING_CLIENT
    from zluda_stack.verify import clients

    client = context.catalog().clients[plan.client or CODING_CLIENT]
    key = keys.ensure_key(plan.name)
    found = []
    for finding in clients.run(
        plan.endpoint, key, client, client.modes[0], _around, only=_LOOKED_FOR
    ):
        found.append(finding)
        if show:
            name = f"{finding.name} for {client.title} ({finding.seconds:.1f} s)"
            told = as_typed(_told(finding, plan, client))
            output.say(f"{_MARKS[finding.verdict.value]} {name}: {told}")
    return tuple(found)


def _around(name: str) -> AbstractContextManager[None]:
    return output.waiting(f"asking the endpoint: {name} ...")


def _told(finding: Finding, plan: Plan, client: Client) -> str:
    """What was found, in short where the plan has told it already."""
    warned = any(warning.code == "context-too-small" for warning in plan.warnings)
    if warned and finding.name == "context" and finding.verdict.value == "limit":
        floor = client.modes[0].context_floor
        return f"{plan.model.context} tokens, and {client.title} needs {floor}"
    return finding.told
