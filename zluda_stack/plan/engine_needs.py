"""What the chosen engine needs of this machine, whatever it is to run."""

from __future__ import annotations

from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.building import DOCKER
from zluda_stack.plan.gpu_reach import CPU_WAY
from zluda_stack.plan.types import EngineName, Notice

# What the probe says where no docker command is on PATH (zluda_stack/host/docker.py).
_NOT_INSTALLED = "the docker command is not installed"


def engine_needs(facts: HostFacts, engine: EngineName) -> tuple[Notice, ...]:
    """The first thing that `engine` lacks here; nothing when it can start."""
    if engine == "embedded":
        return _embedded_needs(facts)
    lack = _docker_lacks(facts)
    return () if lack is None else (Notice(code=DOCKER, message=lack[0], hint=lack[1]),)


def _docker_lacks(facts: HostFacts) -> tuple[str, str] | None:
    """(message, hint) for what keeps Docker from building and starting containers."""
    docker = facts.docker
    if docker_is_missing(facts):
        return (
            "containers need Docker, and the docker command is not installed",
            f"Install Docker Engine with the compose and buildx plugins. {CPU_WAY}",
        )
    if docker.problem is not None:
        return (
            f"containers need Docker, and its engine does not answer: {docker.problem}",
            f"Start the engine, or give your user access to it. {CPU_WAY}",
        )
    if compose_version(facts) is None:
        return (
            "containers need Docker Compose v2, and `docker compose` does not answer",
            f"Install the docker-compose-plugin package. {CPU_WAY}",
        )
    if docker.buildx_version is None and docker.emulated_by is None:
        return (
            "images are built with BuildKit, and `docker buildx` does not answer",
            f"Install the docker-buildx-plugin package. {CPU_WAY}",
        )
    return None


def docker_is_missing(facts: HostFacts) -> bool:
    """True without a docker command; one that only does not answer is there."""
    docker = facts.docker
    if docker.client_version is not None or docker.engine_version is not None:
        return False
    return docker.problem in (None, _NOT_INSTALLED)


def compose_version(facts: HostFacts) -> str | None:
    """The version of Compose; that of `podman compose` where the docker command is Podman's."""
    podman = facts.podman
    if facts.docker.emulated_by == "podman" and podman is not None:
        return facts.docker.compose_version or podman.compose_version
    return facts.docker.compose_version


def _embedded_needs(facts: HostFacts) -> tuple[Notice, ...]:
    if not facts.embedded.missing:
        return ()
    return (
        Notice(
            code="embedded-packages",
            message=f"the embedded engine lacks {', '.join(facts.embedded.missing)}",
            hint="Install them: pip install 'zluda-stack[embedded]'",
        ),
    )
