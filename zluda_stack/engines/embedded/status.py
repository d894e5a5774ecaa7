"""What is true of a stack now."""

from __future__ import annotations

from zluda_stack.engines import logs
from zluda_stack.engines.base import ServiceStatus, StackStatus, State
from zluda_stack.engines.common import TAIL_LINES, answers
from zluda_stack.engines.embedded.state import (
    SERVICES,
    SUPERVISOR,
    RunRecord,
    StackFolder,
    read_plan,
    read_record,
    read_report,
)

_ENGINE = "embedded"


def read_status(folder: StackFolder) -> StackStatus:
    """The status from held locks, recorded ends and one request to the endpoint."""
    name, record, plan = folder.root.name, read_record(folder), read_plan(folder)
    if record is None and not folder.lives(SUPERVISOR):
        return StackStatus(name=name, engine=_ENGINE, state=State.STOPPED, healthy=False)
    services = tuple(_service(folder, record, service) for service in SERVICES)
    report = read_report(folder)
    state = _overall(services, record, loaded=report is not None)
    return StackStatus(
        name=name,
        engine=_ENGINE,
        state=state,
        healthy=state is State.RUNNING and plan is not None and answers(plan.endpoint),
        url=plan.endpoint.url if plan else None,
        model=plan.model.name if plan else None,
        context=plan.model.context if plan else None,
        device=report.device if report else None,
        services=services,
    )


def _service(folder: StackFolder, record: RunRecord | None, service: str) -> ServiceStatus:
    pid = record.pid(service) if record else None
    if folder.lives(service):
        return ServiceStatus(name=service, state=State.RUNNING, pid=pid)
    if record is None or not (service == SUPERVISOR or service in record.processes):
        return ServiceStatus(name=service, state=State.STARTING)
    process = record.processes.get(service)
    orphaned = service != SUPERVISOR and not folder.lives(SUPERVISOR)
    if record.draining or (orphaned and process is not None and process.exit_status is None):
        return ServiceStatus(name=service, state=State.STOPPED)
    return ServiceStatus(
        name=service,
        state=State.CRASHED,
        exit_status=process.exit_status if process else None,
        log_tail=logs.tail(folder.log(service), TAIL_LINES),
    )


def _overall(
    services: tuple[ServiceStatus, ...], record: RunRecord | None, *, loaded: bool
) -> State:
    states = {service.state for service in services}
    if State.CRASHED in states:
        return State.CRASHED
    if record is not None and record.draining:
        return State.RUNNING
    return State.RUNNING if states == {State.RUNNING} and loaded else State.STARTING
