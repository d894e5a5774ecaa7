"""Where the endpoint listens: the address, and a port that is free or already ours."""

from __future__ import annotations

import ipaddress

from msgspec import Struct

from zluda_stack.catalog.schema import Defaults
from zluda_stack.errors import PlanRefused
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.types import Decision, EndpointPlan, Notice
from zluda_stack.settings import Configured


class EndpointChoice(Struct, frozen=True, kw_only=True):
    """The endpoint, why this port, and what stands in its way."""

    endpoint: EndpointPlan
    decision: Decision
    warnings: tuple[Notice, ...] = ()
    unmet: tuple[Notice, ...] = ()


def choose_endpoint(facts: HostFacts, configured: Configured, defaults: Defaults) -> EndpointChoice:
    """The endpoint of the stack (case C14).

    A port that the user named must be free or held by this very stack, else it is unmet; the
    default port gives way to the next free one. Raises PlanRefused for an address that is none.
    """
    settings = configured.settings
    bind = _address(settings.bind)
    busy = set(facts.listening_ports) - _own_ports(facts, settings.name)
    if settings.port is not None:
        port, because = settings.port, f"given ({configured.origin('port')})"
    else:
        port, because = _free_port(facts, settings.name, busy, defaults)
    return EndpointChoice(
        endpoint=EndpointPlan(bind=str(bind), port=port, host=_client_host(bind)),
        decision=Decision(what="port", value=str(port), because=because),
        warnings=_exposure(bind),
        unmet=(_taken(port, facts),) if port in busy else (),
    )


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address("127.0.0.1" if text == "localhost" else text)
    except ValueError as error:
        raise PlanRefused(
            f"{text!r} is no IP address to bind to",
            "Use 127.0.0.1 for this machine only, or 0.0.0.0 for every interface.",
        ) from error


def _client_host(bind: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    if bind.is_unspecified:
        return "127.0.0.1" if bind.version == 4 else "::1"
    return str(bind)


def _own_ports(facts: HostFacts, name: str) -> set[int]:
    return {stack.port for stack in facts.running if stack.name == name}


def _free_port(facts: HostFacts, name: str, busy: set[int], defaults: Defaults) -> tuple[int, str]:
    own = sorted(_own_ports(facts, name))
    if own:
        return own[0], "this stack already listens there"
    candidates = range(defaults.port, defaults.port + defaults.port_search)
    free = next((port for port in candidates if port not in busy), None)
    if free is None:
        return defaults.port, f"the default; it and the next {defaults.port_search - 1} are taken"
    if free == defaults.port:
        return free, "the default"
    return free, f"the default {defaults.port} is taken by another program"


def _taken(port: int, facts: HostFacts) -> Notice:
    holder = next((stack.name for stack in facts.running if stack.port == port), None)
    by = "another program" if holder is None else f"your own stack {holder!r}"
    stop = "Stop it" if holder is None else f"Stop it (`zluda-stack down --name {holder}`)"
    return Notice(
        code="port-taken",
        message=f"port {port} is taken by {by}",
        hint=f"{stop}, or choose another port with --port.",
    )


def _exposure(bind: ipaddress.IPv4Address | ipaddress.IPv6Address) -> tuple[Notice, ...]:
    if bind.is_loopback:
        return ()
    return (
        Notice(
            code="exposed",
            message=f"the endpoint listens on {bind}: other machines can reach it, without TLS",
            hint="Everyone who has the API key can use it; keep 127.0.0.1 unless you mean this.",
        ),
    )
