"""The docker engine: carries a plan out with Compose, and reads the truth from the containers."""

from __future__ import annotations

from collections.abc import Iterator

from zluda_stack import paths
from zluda_stack.engines.base import StackStatus, State
from zluda_stack.engines.common import alone, make_private, never_started, stop_interrupted
from zluda_stack.engines.docker import build, compose, containers, stack
from zluda_stack.engines.docker.change import Change
from zluda_stack.engines.docker.secrets import are_written
from zluda_stack.engines.docker.served import served_images
from zluda_stack.engines.docker.state import StackFolder, read_plan
from zluda_stack.errors import UsageError
from zluda_stack.plan.types import Plan
from zluda_stack.progress import Progress, Silent
from zluda_stack.render.compose import compose_path


class DockerEngine:
    """Implements `zluda_stack.engines.base.Engine` with containers."""

    def commands(self, plan: Plan) -> tuple[tuple[str, ...], ...]:
        """One BuildKit run for each image that a service uses, then `docker compose up`.

        Offline nothing is built.
        """
        folder = StackFolder(paths.stack(plan.name))
        built = () if plan.offline else served_images(plan)
        return (
            *(build.command(image, folder.context) for image in built),
            compose.up(plan.name, folder.project / compose_path(plan), offline=plan.offline),
        )

    def is_up(self, plan: Plan) -> bool:
        """True when the containers were made from this plan and the stack is healthy."""
        folder = StackFolder(paths.stack(plan.name))
        made = Change(plan, folder, Silent()).matches(read_plan(folder))
        return made and are_written(plan, folder) and self.status(plan.name).healthy

    def up(self, plan: Plan, progress: Progress) -> StackStatus:
        """Bring the stack to `plan` and return when the endpoint answers.

        What runs keeps running while images are built, and until Compose replaces it; when the
        replacement does not start, it is started again. Raises HostProblem, EngineFailure with
        the log's tail, Interrupted.
        """
        folder = StackFolder(paths.stack(plan.name))
        make_private(folder.root)
        change = Change(plan, folder, progress)
        try:
            with alone(folder.root, progress), containers.connect() as client:
                change.carry_out(client)
        except KeyboardInterrupt:
            raise change.interrupted() from None
        return self.status(plan.name)

    def down(self, name: str, progress: Progress, *, volumes: bool = False) -> bool:
        """Remove the containers and the network; True when there were any.

        Requests in flight may end first. With `volumes`, what the stack keeps in volumes (its
        copy of the model, compiled kernels) goes too.
        """
        folder = StackFolder(paths.stack(name))
        if not folder.root.is_dir() or not (volumes or folder.mark.exists()):
            return False
        try:
            with alone(folder.root, progress), containers.connect() as client:
                there = bool(stack.read_own(client, folder))
                if there:
                    progress.step("stopping the stack; requests in flight may end first")
                compose.down(name, folder, *(("--volumes",) if volumes else ()))
                return there
        except KeyboardInterrupt:
            raise stop_interrupted(name) from None

    def status(self, name: str) -> StackStatus:
        """What is true now: the containers' states, and one request to the endpoint.

        A stack that was never started, or taken down, is stopped; that asks no Docker Engine.
        """
        folder = StackFolder(paths.stack(name))
        if not folder.mark.exists():
            return StackStatus(name=name, engine=stack.ENGINE, state=State.STOPPED, healthy=False)
        with containers.connect() as client:
            return stack.status(client, folder, read_plan(folder), stack.read_own(client, folder))

    def logs(self, name: str, service: str | None, tail: int, *, follow: bool) -> Iterator[str]:
        """Log lines, oldest first, `service: line` when `service` is None."""
        folder = StackFolder(paths.stack(name))
        plan = read_plan(folder)
        if plan is None:
            raise never_started(name)
        services = [one.name for one in plan.services]
        if service is not None and service not in services:
            raise UsageError(
                f"the stack has no service {service}", f"Its services: {', '.join(services)}."
            )
        return compose.logs(name, folder, service, tail, follow=follow)
