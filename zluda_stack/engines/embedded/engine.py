"""The embedded engine: carries a plan out with local processes, and reads the truth about them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from zluda_stack import keys, paths
from zluda_stack.engines import logs, ports
from zluda_stack.engines.base import ServiceStatus, StackStatus, State
from zluda_stack.engines.common import (
    PROGRESS_SECONDS,
    TAIL_LINES,
    alone,
    answers,
    make_private,
    spell_exit,
    undisturbed,
)
from zluda_stack.engines.embedded import commands
from zluda_stack.engines.embedded.state import (
    ENDPOINT,
    INFERENCE,
    SERVICES,
    SUPERVISOR,
    RunRecord,
    StackFolder,
    read_plan,
    read_record,
    read_report,
)
from zluda_stack.engines.embedded.supervisor import STOP_SECONDS
from zluda_stack.errors import EngineFailure, HostProblem, Interrupted, UsageError
from zluda_stack.files import write_atomic
from zluda_stack.plan.types import ModelPlan, Plan, to_json
from zluda_stack.progress import Progress, Silent

Locate = Callable[[ModelPlan, Progress], Path]
"""Returns the GGUF file of a planned model, fetching it first where it must."""

_NAME = "embedded"
_POLL_SECONDS = 0.1
_HEALTH_SECONDS = 2.0
_BUSY_SECONDS = 30
_KILL_SECONDS = 30


def from_store(model: ModelPlan, progress: Progress) -> Path:
    """The user's own file, or the catalogue's from the model store, fetched when missing."""
    from zluda_stack.models.store import Store

    if model.catalogued is None:
        return Path(model.path or model.name)
    return Store(paths.model_store()).ensure(model.catalogued, progress)


def _present(model: ModelPlan) -> Path | None:
    from zluda_stack.models.store import Store

    if model.path is not None:
        return Path(model.path)
    return Store(paths.model_store()).get(model.catalogued) if model.catalogued else None


class EmbeddedEngine:
    """Implements `zluda_stack.engines.base.Engine` without Docker, a GPU or root."""

    def __init__(self, locate: Locate = from_store) -> None:
        self._locate = locate

    def commands(self, plan: Plan) -> tuple[tuple[str, ...], ...]:
        """The supervisor's command line, and the two that it starts.

        The file of a model that has still to be fetched stands there as NAME.gguf.
        """
        folder = StackFolder(paths.stack(plan.name))
        model = _present(plan.model) or Path(f"{plan.model.name}.gguf")
        return (
            commands.supervisor(folder, model),
            commands.inference(plan, model),
            commands.endpoint(folder, plan),
        )

    def up(self, plan: Plan, progress: Progress) -> StackStatus:
        """Bring the stack to `plan` and return when the endpoint answers.

        What runs already keeps running until the model is there and the port is known to be
        free; when its replacement does not start, it is started again. Raises HostProblem,
        EngineFailure with the log's tail, Interrupted.
        """
        folder = StackFolder(paths.stack(plan.name))
        make_private(folder.root)
        change = _Change(folder)
        try:
            with alone(folder.root, progress):
                return self._up(plan, folder, progress, change)
        except KeyboardInterrupt:
            raise change.interrupted(plan.name) from None

    def _up(
        self, plan: Plan, folder: StackFolder, progress: Progress, change: _Change
    ) -> StackStatus:
        status = self.status(plan.name)
        current = read_plan(folder) if folder.lives(SUPERVISOR) else None
        if current is not None and folder.key.exists() and same_run(current, plan):
            if status.state is State.RUNNING:
                status = self._give_time(plan, status, progress)
            if status.healthy:
                return status
            if status.state is State.STARTING:
                return self._wait(plan, progress)
        if current is None or current.endpoint != plan.endpoint:
            ports.require_free(plan.endpoint)
        model = self._locate(plan.model, progress)
        with change.undone_on_interrupt():
            _stop(folder, progress)
            try:
                return self._start(plan, folder, model, progress)
            except (EngineFailure, HostProblem) as failure:
                if current is None or not status.healthy:
                    raise
                progress.step(f"{plan.model.name} did not start; going back to what ran before")
                self._start(current, folder, self._locate(current.model, progress), progress)
                raise EngineFailure(
                    failure.message,
                    f"The stack runs again as before, with {current.model.name}. {failure.hint}",
                ) from failure

    def _start(
        self, plan: Plan, folder: StackFolder, model: Path, progress: Progress
    ) -> StackStatus:
        ports.require_free(plan.endpoint)
        _launch(plan, folder, model)
        try:
            return self._wait(plan, progress)
        except EngineFailure:
            _stop(folder, Silent())
            raise

    def down(self, name: str, progress: Progress) -> bool:
        """Stop the stack; True when there was one. Requests in flight may end first."""
        folder = StackFolder(paths.stack(name))
        if not folder.root.is_dir():
            return False
        try:
            with alone(folder.root, progress):
                return _stop(folder, progress)
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted; the stack {name} may still be stopping",
                "`zluda-stack status` shows what is left; `zluda-stack down` goes on.",
            ) from None

    def status(self, name: str) -> StackStatus:
        """What is true now: held locks, recorded ends, and one request to the endpoint."""
        folder = StackFolder(paths.stack(name))
        record = read_record(folder)
        lives = folder.lives(SUPERVISOR)
        plan = read_plan(folder)
        if plan is None or not (lives or record):
            return StackStatus(name=name, engine=_NAME, state=State.STOPPED, healthy=False)
        services = tuple(_service(folder, record, service) for service in SERVICES)
        report = read_report(folder)
        state = _overall(services, record, loaded=report is not None)
        return StackStatus(
            name=name,
            engine=_NAME,
            state=state,
            healthy=state is State.RUNNING and answers(plan.endpoint),
            url=plan.endpoint.url,
            model=plan.model.name,
            context=plan.model.context,
            device=report.device if report else None,
            services=services,
        )

    def logs(self, name: str, service: str | None, tail: int, *, follow: bool) -> Iterator[str]:
        """Log lines, oldest first, `service: line` when `service` is None."""
        folder = StackFolder(paths.stack(name))
        if not folder.root.is_dir():
            raise UsageError(f"there is no stack named {name}", "`zluda-stack up` starts one.")
        if service is not None and service not in SERVICES:
            raise UsageError(
                f"the stack has no service {service}", f"Its services: {', '.join(SERVICES)}."
            )
        files = {each: folder.log(each) for each in SERVICES if service in {None, each}}
        lines = logs.follow(files, tail) if follow else logs.tails(files, tail)
        return (f"{each}: {line}" if service is None else line for each, line in lines)

    def _give_time(self, plan: Plan, status: StackStatus, progress: Progress) -> StackStatus:
        """The status once a running stack answers or is given up: it may only be busy."""
        if not status.healthy:
            progress.step(f"{plan.name} runs but does not answer; giving it {_BUSY_SECONDS} s")
        deadline = time.monotonic() + _BUSY_SECONDS
        while status.state is State.RUNNING and not status.healthy:
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_SECONDS)
            status = self.status(plan.name)
        return status

    def _wait(self, plan: Plan, progress: Progress) -> StackStatus:
        """Wait for the endpoint, without a limit as long as the processes live."""
        began = time.monotonic()
        told = -PROGRESS_SECONDS
        while True:
            status = self.status(plan.name)
            if status.healthy:
                return status
            if status.state in {State.CRASHED, State.STOPPED}:
                raise _failure(status)
            waited = int(time.monotonic() - began)
            if waited >= told + PROGRESS_SECONDS:
                told = waited
                progress.step(f"loading {plan.model.name} ... {waited} s")
            time.sleep(_POLL_SECONDS)


class _Change:
    """What one `up` has done so far, for the word on Ctrl-C."""

    def __init__(self, folder: StackFolder) -> None:
        self._folder = folder
        self._made = False

    @contextlib.contextmanager
    def undone_on_interrupt(self) -> Iterator[None]:
        """On Ctrl-C, stop what was started; further ones do not disturb that."""
        self._made = True
        try:
            yield
        except KeyboardInterrupt:
            with undisturbed():
                _stop(self._folder, Silent(), impatient=True)
            raise

    def interrupted(self, name: str) -> Interrupted:
        """The error that says which state was left."""
        if self._made:
            return Interrupted(
                f"interrupted; the stack {name} is stopped", "`zluda-stack up` starts it."
            )
        return Interrupted("interrupted; nothing was changed", "`zluda-stack status` shows it.")


def same_run(current: Plan, wanted: Plan) -> bool:
    """True when both plans start the same processes; their explanations may differ."""
    return (current.model, current.endpoint, current.threads) == (
        wanted.model,
        wanted.endpoint,
        wanted.threads,
    )


def _launch(plan: Plan, folder: StackFolder, model: Path) -> None:
    write_atomic(folder.plan, to_json(plan), mode=0o600)
    keys.ensure_key(plan.name)
    # In the stack's folder, because `python -m` looks for modules in the working directory
    # first, and the user may stand in a folder with any names.
    done = subprocess.run(
        commands.supervisor(folder, model.absolute()),
        cwd=folder.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    if done.returncode != 0:
        raise EngineFailure(
            f"the supervisor did not start: {done.stderr.strip()}",
            "`zluda-stack doctor` checks this installation.",
        )


def _stop(folder: StackFolder, progress: Progress, *, impatient: bool = False) -> bool:
    """Stop whatever of the stack lives and clear its record; True when there was something.

    `impatient` gives requests in flight no time to end.
    """
    there = folder.lives(SUPERVISOR) or folder.record.exists()
    if folder.lives(SUPERVISOR):
        progress.step("stopping the stack; requests in flight may end first")
        _signal(folder, SUPERVISOR, signal.SIGKILL if impatient else signal.SIGTERM)
    if not _ended(folder, SUPERVISOR, STOP_SECONDS):
        _signal(folder, SUPERVISOR, signal.SIGKILL)
    for service in (SUPERVISOR, ENDPOINT, INFERENCE):  # the last two end with the first
        if not _ended(folder, service, _KILL_SECONDS):
            _signal(folder, service, signal.SIGKILL)
            if not _ended(folder, service, _KILL_SECONDS):
                raise EngineFailure(
                    f"the {service} process of {folder.root.name} does not end, even when killed",
                    "It hangs in the kernel; restart the machine.",
                )
    for path in (folder.socket, folder.report, folder.record):
        path.unlink(missing_ok=True)
    return there


def _signal(folder: StackFolder, service: str, number: signal.Signals) -> None:
    """Send a signal to the living process of `service`.

    Its lock is held, so the record is of this run (`_stop` clears every other) and the pid
    in it has not passed on to a stranger.
    """
    deadline = time.monotonic() + _HEALTH_SECONDS
    while folder.lives(service) and time.monotonic() < deadline:
        pid = _pid(read_record(folder), service)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            return
        time.sleep(_POLL_SECONDS)  # a supervisor writes its record right after taking the lock


def _ended(folder: StackFolder, service: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while folder.lives(service):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _pid(record: RunRecord | None, service: str) -> int | None:
    if record is None:
        return None
    if service == SUPERVISOR:
        return record.supervisor
    process = record.processes.get(service)
    return process.pid if process else None


def _service(folder: StackFolder, record: RunRecord | None, service: str) -> ServiceStatus:
    pid = _pid(record, service)
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


def _failure(status: StackStatus) -> EngineFailure:
    hint = f"`zluda-stack logs --name {status.name}` shows the whole log."
    for service in status.services:
        if service.state is State.CRASHED:
            how = "" if service.exit_status is None else f" ({spell_exit(service.exit_status)})"
            tail = "\n".join(service.log_tail)
            return EngineFailure(f"the {service.name} process ended{how}:\n{tail}", hint)
    return EngineFailure(f"the stack {status.name} was stopped while it started", hint)
