"""The embedded engine: carries a plan out with local processes, and reads the truth about them."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from zluda_stack import keys, paths
from zluda_stack.engines import logs, ports
from zluda_stack.engines.base import StackStatus, State
from zluda_stack.engines.common import (
    PROGRESS_SECONDS,
    alone,
    make_private,
    never_started,
    spell_exit,
    stop_interrupted,
    undisturbed,
)
from zluda_stack.engines.embedded import commands
from zluda_stack.engines.embedded.state import SERVICES, SUPERVISOR, StackFolder, read_plan
from zluda_stack.engines.embedded.status import read_status
from zluda_stack.engines.embedded.stopping import stop
from zluda_stack.errors import EngineFailure, HostProblem, Interrupted, UsageError
from zluda_stack.files import write_atomic
from zluda_stack.plan.offline import BRINGS
from zluda_stack.plan.types import ModelPlan, Plan, to_json
from zluda_stack.program import command
from zluda_stack.progress import Progress, Silent

Locate = Callable[[ModelPlan, Progress], Path]
"""Returns the GGUF file of a planned model, fetching it first where it must."""

_POLL_SECONDS = 0.1
_BUSY_SECONDS = 30


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

    def is_up(self, plan: Plan) -> bool:
        """True when the stack runs this plan and is healthy."""
        folder = StackFolder(paths.stack(plan.name))
        return _runs(folder, plan) and self.status(plan.name).healthy

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
        lives = folder.lives(SUPERVISOR)
        current = read_plan(folder) if lives else None
        if _runs(folder, plan):
            if status.state is State.RUNNING:
                status = self._give_time(plan, status, progress)
            if status.healthy:
                return status
            if status.state is State.STARTING:
                return self._wait(plan, progress)
        if not lives or (current is not None and not current.endpoint.listens_as(plan.endpoint)):
            ports.require_free(plan.endpoint)
        model = self._file(plan, progress)
        with change.undone_on_interrupt():
            stop(folder, progress)
            try:
                return self._start(plan, folder, model, progress)
            except (EngineFailure, HostProblem) as failure:
                if current is None or not status.healthy:
                    raise
                progress.step(f"{plan.model.name} did not start; going back to what ran before")
                self._start(current, folder, self._file(current, progress), progress)
                raise EngineFailure(
                    failure.message,
                    f"The stack runs again as before, with {current.model.name}. {failure.hint}",
                ) from failure

    def _file(self, plan: Plan, progress: Progress) -> Path:
        """The GGUF file of the planned model. Raises HostProblem where it may not be fetched."""
        if not plan.offline:
            return self._locate(plan.model, progress)
        present = _present(plan.model)
        if present is None:
            raise HostProblem(
                f"the model {plan.model.name} is not here, and offline nothing is fetched", BRINGS
            )
        return present

    def _start(
        self, plan: Plan, folder: StackFolder, model: Path, progress: Progress
    ) -> StackStatus:
        ports.require_free(plan.endpoint)
        _launch(plan, folder, model)
        try:
            return self._wait(plan, progress)
        except EngineFailure:
            stop(folder, Silent())
            raise

    def down(self, name: str, progress: Progress, *, volumes: bool = False) -> bool:  # noqa: ARG002
        """Stop the stack; True when there was one. Requests in flight may end first.

        It keeps nothing in volumes.
        """
        folder = StackFolder(paths.stack(name))
        if not folder.root.is_dir():
            return False
        try:
            with alone(folder.root, progress):
                return stop(folder, progress)
        except KeyboardInterrupt:
            raise stop_interrupted(name) from None

    def status(self, name: str) -> StackStatus:
        """What is true now: held locks, recorded ends, and one request to the endpoint."""
        return read_status(StackFolder(paths.stack(name)))

    def logs(self, name: str, service: str | None, tail: int, *, follow: bool) -> Iterator[str]:
        """Log lines, oldest first, `service: line` when `service` is None."""
        folder = StackFolder(paths.stack(name))
        if not folder.root.is_dir():
            raise never_started(name)
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
                stop(self._folder, Silent(), impatient=True)
            raise

    def interrupted(self, name: str) -> Interrupted:
        """The error that says which state was left."""
        if self._made:
            return Interrupted(
                f"interrupted; the stack {name} is stopped", f"`{command('up', name)}` starts it."
            )
        return Interrupted(
            "interrupted; nothing was changed", f"`{command('status', name)}` shows it."
        )


def same_run(current: Plan, wanted: Plan) -> bool:
    """True when both plans start the same processes; their explanations may differ."""
    return (current.model, current.endpoint, current.threads) == (
        wanted.model,
        wanted.endpoint,
        wanted.threads,
    )


def _runs(folder: StackFolder, plan: Plan) -> bool:
    """True when the processes of `folder` live and are those of `plan`, with its key."""
    current = read_plan(folder) if folder.lives(SUPERVISOR) else None
    return current is not None and folder.key.exists() and same_run(current, plan)


def _launch(plan: Plan, folder: StackFolder, model: Path) -> None:
    write_atomic(folder.plan, to_json(plan), mode=0o600)
    keys.ensure_key(plan.name)
    keys.ensure_keyring(plan.name)
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


def _failure(status: StackStatus) -> EngineFailure:
    hint = f"`{command('logs', status.name)}` shows the whole log."
    for service in status.services:
        if service.state is State.CRASHED:
            how = "" if service.exit_status is None else f" ({spell_exit(service.exit_status)})"
            tail = "\n".join(service.log_tail)
            return EngineFailure(f"the {service.name} process ended{how}:\n{tail}", hint)
    return EngineFailure(f"the stack {status.name} was stopped while it started", hint)
