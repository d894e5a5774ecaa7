"""The clients: does what they send fit into the model's context."""

from __future__ import annotations

from zluda_stack.catalog.schema import Client
from zluda_stack.doctor.subject import Subject
from zluda_stack.doctor.types import Check, Fix, Verdict, fail, ok, warn
from zluda_stack.errors import ExitCode
from zluda_stack.plan.clients import fits


def _context_too_small(subject: Subject) -> Verdict:
    if subject.client_does_not_fit and subject.refusal is not None:
        client = subject.catalog.clients[subject.settings.client]
        return fail(subject.refusal.message, subject.refusal.hint, _larger_or_simpler(client, 0))
    plan = subject.plan
    if plan is None:
        return ok()
    context = plan.model.context
    for client in subject.catalog.clients.values():
        notice = fits(client, client.modes[0], context)
        if notice is not None and plan.client in (None, client.name):
            return warn(
                notice.message,
                "other clients are not affected; this one would be refused by `connect`",
                _larger_or_simpler(client, context),
            )
    return ok(f"a context of {context} tokens is enough for every known client")


def _larger_or_simpler(client: Client, context: int) -> Fix:
    """Another mode of the client that fits, else the way to a larger context."""
    for mode in client.modes[1:]:
        if context >= mode.context_floor:
            return Fix(command=f"zluda-stack connect {client.name} --{mode.name}")
    floor = client.modes[0].context_floor
    return Fix(
        command="zluda-stack models list",
        then=f"Serve one of {floor} tokens or more: "
        f"`zluda-stack up --model PATH --context {floor}`.",
    )


CHECKS = (
    Check(id="client.context-too-small", look=_context_too_small, exit_code=ExitCode.REFUSED),
)
