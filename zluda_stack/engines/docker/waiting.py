"""From `docker compose up` to an endpoint that answers, for as long as the containers live.

The first start may compile kernels for many minutes, so there is no limit of time: a container
that is alive and whose health check still says `starting` is waited for, and its last log line
shown as a sign of life.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from zluda_stack.engines import logs
from zluda_stack.engines.common import PROGRESS_SECONDS, TAIL_LINES, answers, spell_exit
from zluda_stack.engines.docker import compose, containers
from zluda_stack.engines.docker.containers import Container
from zluda_stack.engines.docker.given_models import give_models
from zluda_stack.engines.docker.state import StackFolder
from zluda_stack.errors import EngineFailure, HostProblem, StackError
from zluda_stack.plan.combination import other_versions
from zluda_stack.plan.containers import SERVER
from zluda_stack.plan.types import Plan
from zluda_stack.program import as_typed, command
from zluda_stack.progress import Progress

if TYPE_CHECKING:
    from docker import DockerClient

_POLL_SECONDS = 0.3
_PORT_TAKEN = ("port is already allocated", "address already in use")


def start(client: DockerClient, plan: Plan, folder: StackFolder, progress: Progress) -> None:
    """Run `docker compose up` on the rendered project; return when the endpoint answers.

    Raises EngineFailure with the log's tail as soon as a container ends or fails its health
    check, HostProblem when the port is taken.
    """
    file = compose.compose_file(folder)
    if file is None:
        raise EngineFailure(
            f"nothing is rendered in {folder.project}", "`zluda-stack up` renders it again."
        )
    give_models(plan, file, folder.compose_log, progress)
    before = containers.read(client, compose.project_name(plan.name))
    watch = _Watch(client, plan, Failures(before))
    line = compose.up(plan.name, file, offline=plan.offline)
    with compose.running(line, folder.compose_log) as process:
        watch.until_it_answers(process, folder.compose_log, progress)


class Failures:
    """Tells a container that failed from one that `before` shows, or that Compose replaces."""

    def __init__(self, before: tuple[Container, ...]) -> None:
        self._ids = {one.id for one in before}
        self._ends = {one.end for one in before}

    def first(self, present: tuple[Container, ...]) -> Container | None:
        """The first container that failed since; None when there is none."""
        return next((one for one in present if self._failed(one)), None)

    def _failed(self, one: Container) -> bool:
        if one.ill:
            return True
        if one.end in self._ends:
            return False
        # Compose stops an old container to replace it; one that it starts again and that ends
        # at once is restarted by its policy, which counts.
        if one.restarts > 0 or one.state == "restarting":
            return True
        ended = one.id not in self._ids and one.state in {"exited", "dead"}
        return ended and not (one.one_shot and one.exit_code == 0)


class _Watch:
    """Looks at the containers of one stack while they start."""

    def __init__(self, client: DockerClient, plan: Plan, failures: Failures) -> None:
        self._client = client
        self._plan = plan
        self._failures = failures

    def until_it_answers(
        self, process: subprocess.Popen[bytes], compose_log: Path, progress: Progress
    ) -> None:
        """Return when Compose is done and the endpoint answers; raise for the first failure."""
        began = time.monotonic()
        told = -PROGRESS_SECONDS
        while True:
            ended = process.poll()  # before the containers are read, which then show what it did
            present = containers.read(self._client, compose.project_name(self._plan.name))
            failed = self._failures.first(present)
            if failed is not None:
                raise self._ended(failed)
            if ended is not None and ended != 0:
                raise self._compose_failed(compose_log, present)
            if ended == 0 and answers(self._plan.endpoint):
                return
            waited = int(time.monotonic() - began)
            if waited >= told + PROGRESS_SECONDS:
                told = waited
                progress.step(self._sign_of_life(present, waited))
            time.sleep(_POLL_SECONDS)

    def _sign_of_life(self, present: tuple[Container, ...], waited: int) -> str:
        """What is being waited for, and what it wrote last."""
        by_name = {one.service: one for one in present if one.state == "running"}
        for service in self._plan.services:
            one = by_name.get(service.name)
            if one is not None and (one.one_shot or one.health == "starting"):
                last = containers.log_tail(self._client, one, 1)
                line = f": {last[-1]}" if last else ""
                return f"starting {service.name} ... {waited} s{line}"
        return f"starting the containers ... {waited} s"

    def _ended(self, one: Container) -> EngineFailure:
        tail = "\n".join(containers.log_tail(self._client, one, TAIL_LINES))
        if one.ill:
            how = "fails its health check"
        elif one.out_of_memory:
            how = "ended: it ran out of memory"
        else:
            code = containers.last_exit_code(self._client, one)
            how = f"ended ({spell_exit(containers.exit_status(code))})"
        other = self._other_versions() if one.service.startswith(SERVER) else ""
        return EngineFailure(f"the {one.service} container {how}:\n{tail}", self._hint + other)

    def _compose_failed(self, compose_log: Path, present: tuple[Container, ...]) -> StackError:
        said = logs.tail(compose_log, TAIL_LINES)
        for one in present:
            if said and one.service in said[-1] and (one.ill or one.ended_badly):
                return self._ended(one)
        text = "\n".join(said)
        if any(sign in text for sign in _PORT_TAKEN):
            endpoint = self._plan.endpoint
            return HostProblem(
                f"port {endpoint.port} on {endpoint.bind} is taken by another program",
                "Stop that program, or choose another port with --port.",
            )
        return EngineFailure(f"docker compose failed:\n{text}", self._hint)

    def _other_versions(self) -> str:
        """What else there is for a model server that does not run on its card."""
        from zluda_stack.catalog.load import load

        other = other_versions(load(), self._plan)
        return "" if other is None else f" {as_typed(other)}"

    @property
    def _hint(self) -> str:
        return f"`{command('logs', self._plan.name)}` shows the whole log."
