"""One container stack as a whole: whose it is, and how it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from zluda_stack import locks
from zluda_stack.engines.base import ServiceStatus, StackStatus, State
from zluda_stack.engines.common import TAIL_LINES, answers, operation_lock
from zluda_stack.engines.docker import compose, containers
from zluda_stack.engines.docker.containers import Container
from zluda_stack.engines.docker.state import StackFolder
from zluda_stack.errors import HostProblem
from zluda_stack.plan.types import Plan

if TYPE_CHECKING:
    from docker import DockerClient

ENGINE = "docker"


def read_own(client: DockerClient, folder: StackFolder) -> tuple[Container, ...]:
    """The containers of this stack. Raises HostProblem when they belong to another folder."""
    project = compose.project_name(folder.root.name)
    present = containers.read(client, project)
    for one in present:
        if not Path(one.folder).is_relative_to(folder.project):
            raise HostProblem(
                f"the containers of {project} are of another stack: its folder is {one.folder}",
                "Choose another name with --name, or stop that stack where it was started.",
            )
    return present


def status(
    client: DockerClient, folder: StackFolder, plan: Plan | None, present: tuple[Container, ...]
) -> StackStatus:
    """What is true of the stack now; `plan` is the one that it was started with."""
    name = folder.root.name
    if plan is None or not present:
        return StackStatus(name=name, engine=ENGINE, state=State.STOPPED, healthy=False)
    one_shot = frozenset(service.name for service in plan.services if service.one_shot)
    lasting = [one for one in present if one.service not in one_shot]
    alive = all(one.state == "running" and not one.ill for one in lasting)
    answered = alive and answers(plan.endpoint)
    changing = locks.held(operation_lock(folder.root))

    def service(one: Container) -> ServiceStatus:
        state = containers.service_state(
            one, changing=changing, one_shot=one.service in one_shot, answers=answered
        )
        ended = one.state in {"exited", "dead", "restarting"}
        crashed = state is State.CRASHED
        return ServiceStatus(
            name=one.service,
            state=state,
            pid=one.pid,
            exit_status=containers.exit_status(one.exit_code) if ended else None,
            log_tail=containers.log_tail(client, one, TAIL_LINES) if crashed else (),
        )

    order = {each.name: place for place, each in enumerate(plan.services)}
    services = tuple(
        service(one) for one in sorted(present, key=lambda one: order.get(one.service, len(order)))
    )
    state = containers.overall({one.name: one.state for one in services}, one_shot)
    return StackStatus(
        name=name,
        engine=ENGINE,
        state=state,
        healthy=answered and state is State.RUNNING,
        url=plan.endpoint.url,
        model=plan.model.name,
        context=plan.model.context,
        services=services,
    )


def is_stuck(found: StackStatus, present: tuple[Container, ...]) -> bool:
    """True when containers live, are not starting, and do not work all the same."""
    silent = found.state is State.RUNNING and not found.healthy
    return silent or any(one.ill for one in present)
