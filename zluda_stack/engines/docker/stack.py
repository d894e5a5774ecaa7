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
    """What is true of the stack now; `plan` is what it was started with, None when unreadable."""
    name = folder.root.name
    if not present:
        return StackStatus(name=name, engine=ENGINE, state=State.STOPPED, healthy=False)
    lasting = {one.service for one in present if not one.one_shot}
    alive = all(one.state == "running" and not one.ill for one in present if not one.one_shot)
    answered = alive and plan is not None and answers(plan.endpoint)
    changing = locks.held(operation_lock(folder.root))

    def service(one: Container) -> ServiceStatus:
        state = containers.service_state(one, changing=changing, answers=answered)
        ended = one.state in {"exited", "dead", "restarting"}
        crashed = state is State.CRASHED
        return ServiceStatus(
            name=one.service,
            state=state,
            pid=one.pid,
            exit_status=containers.exit_status(one.exit_code) if ended else None,
            log_tail=containers.log_tail(client, one, TAIL_LINES) if crashed else (),
        )

    services = tuple(service(one) for one in _in_order(present, plan))
    state = containers.overall(
        (one.state for one in services), (one.state for one in services if one.name in lasting)
    )
    return StackStatus(
        name=name,
        engine=ENGINE,
        state=state,
        healthy=answered and state is State.RUNNING,
        url=plan.endpoint.url if plan else None,
        model=", ".join(plan.served) if plan else None,
        context=plan.model.context if plan else None,
        services=services,
    )


def _in_order(present: tuple[Container, ...], plan: Plan | None) -> list[Container]:
    """In the plan's order, which is that of starting; what the plan does not know comes last."""
    names = [service.name for service in plan.services] if plan else []
    place = {name: number for number, name in enumerate(names)}
    return sorted(present, key=lambda one: (place.get(one.service, len(place)), one.service))


def is_stuck(found: StackStatus, present: tuple[Container, ...]) -> bool:
    """True when containers live and do not work, or are restarted over and over."""
    silent = found.state is State.RUNNING and not found.healthy
    return silent or any(one.ill or one.restarts > 0 for one in present)
