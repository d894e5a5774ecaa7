"""The web page of a profile that has one: where it is, who may open it, and its container."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from msgspec import Struct, structs

from zluda_stack.catalog.schema import Catalog, Defaults
from zluda_stack.errors import PlanRefused
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.ports import PortChoice, Wanted, choose_port
from zluda_stack.plan.profiles import traits
from zluda_stack.plan.types import (
    Decision,
    EndpointPlan,
    GpuDevice,
    HealthCheck,
    Notice,
    PagePlan,
    Service,
)
from zluda_stack.plan.variables import optional
from zluda_stack.settings import Configured

LOGIN = "webui_login"
VOLUMES = ("webui",)
_STATE = "webui:/state"  # its owner in the image is the image's user (images/_macros/webui.j2)
_DIALECT = "--upstream-dialect"
_THIS_MACHINE = "127.0.0.1"


class PageChoice(Struct, frozen=True, kw_only=True):
    """The page, why this port, and what stands in its way."""

    page: PagePlan
    decision: Decision
    unmet: tuple[Notice, ...] = ()


def choose_page(
    facts: HostFacts, configured: Configured, catalog: Catalog, endpoint: EndpointPlan
) -> PageChoice | None:
    """The page of the profile, by the address of `endpoint`; None when the profile has none.

    Raises PlanRefused for a page that others could open without a password: whoever can chat in it
    can also load models and read all chats.
    """
    settings = configured.settings
    if not traits(settings.profile).has_page:
        return None
    if settings.webui_login is None and not ipaddress.ip_address(endpoint.bind).is_loopback:
        raise PlanRefused(
            f"with --bind {endpoint.bind} everyone on the network could open the page of "
            "text-generation-webui, which asks for no password",
            "Give it one: --webui-login FILE, with a line user:password. Or keep --bind 127.0.0.1.",
        )
    choice = _port(facts, configured, catalog.defaults, endpoint)
    page = PagePlan(
        bind=endpoint.bind, port=choice.port, host=endpoint.host, login=settings.webui_login
    )
    return PageChoice(
        page=page,
        decision=Decision(what="page", value=page.url, because=choice.because),
        unmet=choice.unmet,
    )


def _port(
    facts: HostFacts, configured: Configured, defaults: Defaults, endpoint: EndpointPlan
) -> PortChoice:
    mine = (stack for stack in facts.running if stack.name == configured.settings.name)
    wanted = Wanted(
        setting="webui_port",
        default=defaults.page_port,
        own=frozenset(stack.page_port for stack in mine if stack.page_port is not None),
        reserved=frozenset({endpoint.port}),
        taken="page-port-taken",
        of=" of the page",
    )
    return choose_port(facts, configured, wanted, defaults.port_search)


def require_containers(configured: Configured) -> None:
    """Raises PlanRefused for a profile with a page on the engine without containers."""
    settings = configured.settings
    if traits(settings.profile).has_page and settings.engine == "embedded":
        raise PlanRefused(
            f"the profile {settings.profile} is containers, and the embedded engine has none",
            "Leave --engine out, or --profile.",
        )


def require_one_server(configured: Configured, gpus: tuple[GpuDevice, ...], *, split: bool) -> None:
    """Raises PlanRefused for several servers where there is one page."""
    if traits(configured.settings.profile).has_page and len(gpus) > 1 and not split:
        raise PlanRefused(
            f"{len(gpus)} cards would each have a server of their own, and there is one page",
            "Name one card with --gpu, or a model that needs them all.",
        )


def with_page(services: Iterable[Service], page: PagePlan, port: int) -> tuple[Service, ...]:
    """`services` of a stack, its server with `page` on `port` of the container.

    The page's program speaks OpenAI's dialect only, and the endpoint is told. The address is a
    variable of its own: opening the endpoint to the network must not open a page without password.
    """
    return tuple(_with_page(service, page, port) for service in services)


def environment_of(page: PagePlan) -> dict[str, str]:
    """The values of this host for the variables of `with_page`."""
    login = {} if page.login is None else {"ZLUDA_STACK_WEBUI_LOGIN_FILE": page.login}
    return {
        "ZLUDA_STACK_WEBUI_BIND": page.bind,
        "ZLUDA_STACK_WEBUI_PORT": str(page.port),
        **login,
    }


def _with_page(service: Service, page: PagePlan, port: int) -> Service:
    if service.name == "endpoint":
        told = any(option.startswith(_DIALECT) for option in service.command)
        own = () if told else (f"{_DIALECT}=openai",)
        return structs.replace(service, command=service.command + own)
    if service.one_shot:
        return service
    bind = optional("ZLUDA_STACK_WEBUI_BIND", _THIS_MACHINE)
    return structs.replace(
        service,
        publish=((bind, optional("ZLUDA_STACK_WEBUI_PORT", str(port)), port),),
        environment=service.environment | {"PAGE_PORT": str(port), "PAGE_BIND": bind},
        volumes=(*service.volumes, _STATE),
        secrets=service.secrets if page.login is None else (*service.secrets, LOGIN),
        health=_with_page_open(service.health, port),
    )


def _with_page_open(health: HealthCheck | None, port: int) -> HealthCheck | None:
    """`health` that asks for the page too, which opens a moment after the API answers."""
    return None if health is None else structs.replace(health, test=(*health.test, f"{port}/"))
