"""Where the endpoint listens, on a port that is free or already ours, and how it is served."""

from __future__ import annotations

import ipaddress
import re

from msgspec import Struct

from zluda_stack.catalog.schema import Defaults
from zluda_stack.errors import PlanRefused
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.ports import Wanted, choose_port
from zluda_stack.plan.types import Decision, EndpointPlan, Notice, Tls
from zluda_stack.settings import Configured, Settings

# What browsers send: no path, and no slash at the end.
_ORIGIN = re.compile(
    r"\*|https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?|https?://\[[0-9a-fA-F:]+\](?::[0-9]{1,5})?"
)


class EndpointChoice(Struct, frozen=True, kw_only=True):
    """The endpoint, why this port, and what stands in its way."""

    endpoint: EndpointPlan
    decision: Decision
    warnings: tuple[Notice, ...] = ()
    unmet: tuple[Notice, ...] = ()


def choose_endpoint(facts: HostFacts, configured: Configured, defaults: Defaults) -> EndpointChoice:
    """The endpoint of the stack.

    Raises PlanRefused for an address or an origin that is none, and for half of what TLS needs.
    """
    settings = configured.settings
    bind = _address(settings.bind)
    own = frozenset(stack.port for stack in facts.running if stack.name == settings.name)
    wanted = Wanted(setting="port", default=defaults.port, own=own)
    choice = choose_port(facts, configured, wanted, defaults.port_search)
    endpoint = EndpointPlan(
        bind=str(bind),
        port=choice.port,
        host=_client_host(bind),
        name=settings.hostname,
        tls=_tls(settings),
        origins=_origins(settings.allow_origins),
        queue=settings.queue,
        slots=settings.slots,
        capture=settings.capture_prompts,
    )
    return EndpointChoice(
        endpoint=endpoint,
        decision=Decision(what="port", value=str(choice.port), because=choice.because),
        warnings=_exposure(endpoint) + _capture(configured),
        unmet=choice.unmet,
    )


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address("127.0.0.1" if text == "localhost" else text)
    except ValueError as error:
        raise PlanRefused(
            f"{text!r} is no IP address to bind to",
            "Use 127.0.0.1 for this machine only, or 0.0.0.0 for every interface.",
        ) from error


def gateway_options(endpoint: EndpointPlan) -> tuple[str, ...]:
    """Options of the gateway's process that are the same wherever it runs."""
    return (
        *(f"--allow-origin={origin}" for origin in endpoint.origins),
        *(() if endpoint.queue is None else (f"--queue={endpoint.queue}",)),
        *(() if endpoint.slots is None else (f"--slots={endpoint.slots}",)),
    )


def _tls(settings: Settings) -> Tls | None:
    certificate, key = settings.tls_cert, settings.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise PlanRefused(
            f"a {'certificate' if key is None else 'private key'} alone makes no HTTPS",
            "Give both, as --tls-cert FILE --tls-key FILE.",
        )
    return Tls(certificate=certificate, key=key)


def _origins(text: str | None) -> tuple[str, ...]:
    origins = tuple(filter(None, (part.strip() for part in (text or "").split(","))))
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise PlanRefused(
                f"{origin!r} is no origin of a web page",
                "An origin is scheme and host, and the port where it is not the usual one, such "
                "as https://chat.example.org; nothing stands after it.",
            )
    return origins


def _client_host(bind: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    if bind.is_unspecified:
        return "127.0.0.1" if bind.version == 4 else "::1"
    return str(bind)


def _exposure(endpoint: EndpointPlan) -> tuple[Notice, ...]:
    if endpoint.tls is not None or ipaddress.ip_address(endpoint.bind).is_loopback:
        return ()
    return (
        Notice(
            code="exposed",
            message=(
                f"the endpoint listens on {endpoint.bind}: other machines can reach it, without TLS"
            ),
            hint="Keys and prompts pass in the clear: keep 127.0.0.1, or give it a certificate "
            "with --tls-cert and --tls-key.",
        ),
    )


def _capture(configured: Configured) -> tuple[Notice, ...]:
    if not configured.settings.capture_prompts:
        return ()
    origin = configured.origin("capture_prompts")
    return (
        Notice(
            code="capture",
            message="every prompt and every answer is written to disk, and stays there",
            hint=f"Take that back ({origin}) when the fault is found.",
        ),
    )
