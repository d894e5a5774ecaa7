"""One `up`: from what runs now to what the plan says, or back."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from zluda_stack.engines import ports
from zluda_stack.engines.common import undisturbed
from zluda_stack.engines.docker import compose, stack, supply, waiting
from zluda_stack.engines.docker.containers import Container
from zluda_stack.engines.docker.mirror import holds, mirror, replace
from zluda_stack.engines.docker.secrets import with_secret_files, write_secrets
from zluda_stack.engines.docker.served import served_images
from zluda_stack.engines.docker.state import Mark, StackFolder, read_plan, write_mark
from zluda_stack.errors import EngineFailure, HostProblem, Interrupted, StackError
from zluda_stack.files import write_atomic
from zluda_stack.plan.types import Plan, to_json
from zluda_stack.program import command
from zluda_stack.progress import Progress
from zluda_stack.render.project import render_project

if TYPE_CHECKING:
    from docker import DockerClient

__all__ = ["Change", "served_images"]


class Change:
    """Brings one stack to its plan. What was done is known when it ends early."""

    def __init__(self, plan: Plan, folder: StackFolder, progress: Progress) -> None:
        self._plan = plan
        self._folder = folder
        self._progress = progress
        self._files = with_secret_files(render_project(plan), plan, folder)
        self._made = False

    def carry_out(self, client: DockerClient) -> None:
        """Build what changed, then let Compose replace what runs. Idempotent."""
        folder, plan = self._folder, self._plan
        present = stack.read_own(client, folder)
        current = read_plan(folder)
        status = stack.status(client, folder, current, present)
        new_secrets = write_secrets(plan, folder)
        if status.healthy and not new_secrets and self.matches(current):
            return
        if not _listens_there(present, current, plan):
            ports.require_free(plan.endpoint)
        mirror(self._files, folder.context)
        needed = supply.survey(client, plan, served_images(plan))
        supply.provide(client, needed, folder.context, folder.root, self._progress)
        with self._undone_on_interrupt():
            if new_secrets and present:
                # A running container keeps the file that it was started with.
                compose.act(plan.name, folder, "stop")
            if status.healthy and current is not None and folder.project.is_dir():
                self._replace(client, current, present)
            else:
                self._start_anew(client, stuck=stack.is_stuck(status, present))

    def matches(self, current: Plan | None) -> bool:
        """True when the plan `current` made the very containers that this one asks for."""
        return _same_run(current, self._plan) and holds(self._files, self._folder.project)

    def _start_anew(self, client: DockerClient, *, stuck: bool) -> None:
        """Start the stack where nothing healthy runs; a failure leaves it stopped."""
        self._write()
        if stuck:  # Compose itself would leave it as it is
            compose.act(self._plan.name, self._folder, "stop")
        try:
            waiting.start(client, self._plan, self._folder, self._progress)
        except StackError:
            # Stopped and not removed: `logs` and `status` go on telling why.
            compose.act(self._plan.name, self._folder, "stop", "--timeout", "10")
            raise

    def _replace(self, client: DockerClient, current: Plan, present: tuple[Container, ...]) -> None:
        """Start the plan in place of what runs; when that fails, what ran is started again."""
        folder = self._folder
        shutil.rmtree(folder.previous, ignore_errors=True)
        shutil.copytree(folder.project, folder.previous)
        self._write()
        try:
            waiting.start(client, self._plan, folder, self._progress)
        except (EngineFailure, HostProblem) as failure:
            self._progress.step(
                f"{self._plan.model.name} did not start; going back to what ran before"
            )
            # What fails would go on being restarted until Compose has replaced it.
            compose.act(self._plan.name, folder, "stop", "--timeout", "1")
            _go_back(client, current, folder, present)
            waiting.start(client, current, folder, self._progress)
            raise EngineFailure(
                failure.message,
                f"The stack runs again as before, with {current.model.name}. {failure.hint}",
            ) from failure

    def _write(self) -> None:
        """Write what the containers are made from."""
        folder, plan = self._folder, self._plan
        write_atomic(folder.plan, to_json(plan), mode=0o600)
        write_mark(folder, Mark(port=plan.endpoint.port))
        mirror(self._files, folder.project)

    @contextlib.contextmanager
    def _undone_on_interrupt(self) -> Iterator[None]:
        """On Ctrl-C, remove the containers; further ones do not disturb that."""
        self._made = True
        try:
            yield
        except KeyboardInterrupt:
            with undisturbed():
                compose.down(self._plan.name, self._folder, "--timeout", "1")
            raise

    def interrupted(self) -> Interrupted:
        """The error that says which state was left."""
        if self._made:
            return Interrupted(
                f"interrupted; the stack {self._plan.name} is stopped",
                f"`{command('up', self._plan.name)}` starts it.",
            )
        return Interrupted(
            "interrupted; nothing that runs was changed, and finished build steps are kept",
            f"`{command('up', self._plan.name)}` goes on.",
        )


def _same_run(current: Plan | None, wanted: Plan) -> bool:
    """True when both plans make the same containers; their explanations may differ."""

    def made(plan: Plan) -> tuple[object, ...]:
        return (plan.services, plan.images, plan.volumes, plan.host_environment, plan.endpoint)

    return current is not None and made(current) == made(wanted)


def _listens_there(present: tuple[Container, ...], current: Plan | None, plan: Plan) -> bool:
    """True when this very stack may listen where `plan` wants to."""
    alive = any(one.state in {"running", "restarting"} for one in present)
    return alive and (current is None or current.endpoint.listens_as(plan.endpoint))


def _go_back(
    client: DockerClient, current: Plan, folder: StackFolder, present: tuple[Container, ...]
) -> None:
    """Put back the files of `current`, and its images under the names that it asks for."""
    replace(folder.project, folder.previous)
    write_atomic(folder.plan, to_json(current), mode=0o600)
    write_mark(folder, Mark(port=current.endpoint.port))
    for one in present:
        repository, _, tag = one.tag.rpartition(":")
        client.api.tag(one.image, repository, tag)
