"""The endpoint: its port, who reaches it, and whether it answers."""

from __future__ import annotations

import ipaddress

from zluda_stack.doctor.commands import again, of_stack
from zluda_stack.doctor.subject import Subject
from zluda_stack.doctor.types import Check, Fix, Verdict, fail, ok, skip, warn
from zluda_stack.errors import ExitCode
from zluda_stack.plan.ports import first_free
from zluda_stack.plan.types import EndpointPlan
from zluda_stack.settings import DEFAULT

_TIMED_OUT = "timed out"


def _port_taken(subject: Subject) -> Verdict:
    notice = subject.unmet("port-taken")
    if notice is None:
        return ok()
    free = _free_port(subject)
    origin = subject.configured.origin("port")
    if free is None:
        fix = Fix(command="ss -ltnp", then="Stop what listens there, or choose a port.")
    elif origin.kind == "user file":
        fix = Fix(command=f"zluda-stack config set port {free}", safe=True)
    else:
        fix = Fix(command=again(subject, "up", port=free))
    return fail(notice.message, "only one program can listen on a port", fix)


def _free_port(subject: Subject) -> int | None:
    defaults = subject.catalog.defaults
    return first_free(defaults.port, defaults.port_search, subject.facts.listening_ports)


def _port_moved(subject: Subject) -> Verdict:
    plan, default = subject.plan, subject.catalog.defaults.port
    chosen = subject.configured.origin("port") != DEFAULT
    if plan is None or chosen or plan.endpoint.port == default:
        return ok()
    return ok(f"port {plan.endpoint.port}: the default {default} is taken")


def _exposed(subject: Subject) -> Verdict:
    plan = subject.plan
    if plan is None or plan.endpoint.tls or ipaddress.ip_address(plan.endpoint.bind).is_loopback:
        return ok()
    return warn(
        f"the endpoint listens on {plan.endpoint.bind}: other machines can reach it, without TLS",
        "everyone who has the API key can use it; this machine's firewall must let them through",
        Fix(command=again(subject, "up", bind="127.0.0.1"), then="That is for this machine only."),
    )


def _crashed(subject: Subject) -> Verdict:
    stack = subject.facts.stack
    if stack is None or stack.state != "crashed":
        return ok()
    fix = Fix(
        command=of_stack(subject, "logs --tail 50"),
        then=f"Mend what the last lines say, then `{of_stack(subject, 'up')}`.",
    )
    return fail("a service of the stack ended by itself", "its log says why", fix)


def _silent(subject: Subject) -> Verdict:
    plan, stack = subject.plan, subject.facts.stack
    if plan is None or stack is None:
        return skip("the endpoint was not asked")
    if stack.endpoint_answers:
        return ok(f"{plan.endpoint.url} answers")
    if stack.state in (None, "stopped"):
        return ok(f"not running; `{of_stack(subject, 'up')}` starts it")
    if stack.state == "starting":
        return ok(f"starting; `{of_stack(subject, 'logs -f')}` shows how far it is")
    problem = stack.endpoint_problem or "it does not say that it is healthy"
    evidence = f"the stack runs, and {plan.endpoint.url} does not answer: {problem}"
    if _TIMED_OUT in problem and plan.endpoint.host != "127.0.0.1":
        reason = "packets to that address are dropped: mostly a firewall of this machine"
        return fail(evidence, reason, _open_firewall(plan.endpoint))
    return fail(
        evidence, "the services are up, and hang", Fix(command=of_stack(subject, "restart"))
    )


def _open_firewall(endpoint: EndpointPlan) -> Fix:
    return Fix(
        command=f"sudo ufw allow {endpoint.port}/tcp",
        then=f"With firewalld: `sudo firewall-cmd --add-port={endpoint.port}/tcp`.",
    )


CHECKS = (
    Check(id="endpoint.port-taken", look=_port_taken),
    Check(id="endpoint.port-moved", look=_port_moved),
    Check(id="endpoint.exposed", look=_exposed),
    Check(id="endpoint.crashed", look=_crashed, exit_code=ExitCode.ENGINE),
    Check(id="endpoint.silent", look=_silent, exit_code=ExitCode.ENGINE),
)
