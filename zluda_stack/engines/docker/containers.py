"""What the containers of a stack are doing, as the Docker Engine itself says."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from zluda_stack.engines.base import State
from zluda_stack.errors import HostProblem, UsageError

if TYPE_CHECKING:
    from docker import DockerClient

PROJECT_LABEL = "com.docker.compose.project"
_SERVICE_LABEL = "com.docker.compose.service"
_FOLDER_LABEL = "com.docker.compose.project.working_dir"
# 128 + n is how a container tells that signal n ended it; 143 is SIGTERM, a wish to stop.
_SIGNALLED = 128
_STOPPED_BY_WISH = frozenset({0, 143})


class Container(Struct, frozen=True, kw_only=True):
    """One container of a stack.

    `state` and `health` are the engine's own words; `restarts` counts those by its restart
    policy, and a `one_shot` has none: its end is what is waited for. `image` is the id of the
    image that it was made from, `tag` the name it was asked by.
    """

    id: str
    service: str
    folder: str
    state: str
    health: str | None
    exit_code: int
    out_of_memory: bool
    pid: int | None
    restarts: int
    one_shot: bool
    finished: str
    image: str
    tag: str

    @property
    def ended_badly(self) -> bool:
        """True when it ended by itself, or was killed, and not by a wish to stop."""
        return self.state in {"exited", "dead"} and self.exit_code not in _STOPPED_BY_WISH

    @property
    def ill(self) -> bool:
        """True when it lives and its health check says that it does not work."""
        return self.state == "running" and self.health == "unhealthy"

    @property
    def end(self) -> tuple[str, str, int]:
        """Tells one end of this container from another."""
        return (self.id, self.finished, self.restarts)


@contextmanager
def connect() -> Iterator[DockerClient]:
    """The engine behind DOCKER_HOST or the current context. Raises HostProblem."""
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(version="auto", use_ssh_client=True)
    except DockerException as error:
        raise unreachable(error) from error
    try:
        yield client
    finally:
        client.close()


def unreachable(error: object) -> HostProblem:
    """The engine did not answer, in its own words."""
    return HostProblem(
        f"the Docker Engine does not answer: {error}",
        "Start it, or give your user access to it; `zluda-stack doctor` shows more.",
    )


def no_name(image: str, error: Exception) -> UsageError | None:
    """What to say of `image` when the engine's `error` is that this is no name of one."""
    if getattr(error, "status_code", None) != HTTPStatus.BAD_REQUEST:
        return None
    return UsageError(
        f"{image!r} is no name of an image", "`docker images` lists those that are here."
    )


def read(client: DockerClient, project: str) -> tuple[Container, ...]:
    """Every container of the Compose project `project`, running or not. Raises HostProblem."""
    from docker.errors import DockerException, NotFound
    from requests import RequestException

    found = []
    try:
        wanted = {"label": f"{PROJECT_LABEL}={project}"}
        for listed in client.api.containers(all=True, filters=wanted):
            try:
                found.append(_container(client.api.inspect_container(listed["Id"])))
            except NotFound:
                continue  # removed just now
    except (DockerException, RequestException) as error:
        raise unreachable(error) from error
    return tuple(found)


def _container(raw: dict[str, Any]) -> Container:
    state, config = raw["State"], raw["Config"]
    labels = config.get("Labels") or {}
    return Container(
        id=raw["Id"],
        service=labels.get(_SERVICE_LABEL, ""),
        folder=labels.get(_FOLDER_LABEL, ""),
        state=state["Status"],
        health=(state.get("Health") or {}).get("Status"),
        exit_code=state["ExitCode"],
        out_of_memory=state.get("OOMKilled", False),
        pid=state["Pid"] or None,
        restarts=raw.get("RestartCount", 0),
        one_shot=raw["HostConfig"]["RestartPolicy"]["Name"] in {"", "no"},
        finished=state["FinishedAt"],
        image=raw["Image"],
        tag=config["Image"],
    )


def log_tail(client: DockerClient, container: Container, lines: int) -> tuple[str, ...]:
    """The last `lines` lines that the container wrote; none when they cannot be read."""
    from docker.errors import DockerException
    from requests import RequestException

    try:
        raw = client.api.logs(container.id, tail=lines, stream=False)
    except (DockerException, RequestException):
        return ()
    return tuple(raw.decode(errors="replace").splitlines())


def last_exit_code(client: DockerClient, container: Container) -> int:
    """The exit code of the container's last end, also when it runs again by now."""
    from docker.errors import DockerException
    from requests import RequestException

    if container.state != "running":
        return container.exit_code
    wanted = {"container": container.id, "event": "die"}
    try:
        events = list(
            client.api.events(since=0, until=int(time.time()) + 1, filters=wanted, decode=True)
        )
    except (DockerException, RequestException):
        return container.exit_code
    return int(events[-1]["Actor"]["Attributes"]["exitCode"]) if events else container.exit_code


def exit_status(code: int) -> int:
    """The exit code of a container as an exit status; negative for a signal."""
    number = code - _SIGNALLED
    return -number if number in {known.value for known in signal.Signals} else code


def service_state(container: Container, *, changing: bool, answers: bool) -> State:
    """The state of one container.

    `changing` while a command works on its stack; `answers` when the endpoint was just heard,
    which is newer than what the last health check says.
    """
    if container.state == "running":
        waits = container.one_shot or (container.health == "starting" and not answers)
        return State.STARTING if waits else State.RUNNING
    if container.state == "created":
        return State.STARTING if changing else State.STOPPED
    if container.state == "restarting" or container.ended_badly:
        return State.CRASHED
    return State.STOPPED


def overall(every: Iterable[State], lasting: Iterable[State]) -> State:
    """The state of a stack from those of `every` service, and of those that are to last.

    A one-shot service that has done its work counts as done; a lasting one that stopped while
    others run leaves a stack that is not whole.
    """
    states, meant_to_last = set(every), set(lasting)
    for decisive in (State.CRASHED, State.STARTING):
        if decisive in states:
            return decisive
    if meant_to_last <= {State.STOPPED}:
        return State.STOPPED
    return State.RUNNING if meant_to_last == {State.RUNNING} else State.CRASHED
