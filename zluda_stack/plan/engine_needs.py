"""Which engine is chosen, and what it needs of this machine, whatever it is to run."""

from __future__ import annotations

from zluda_stack.catalog.schema import HostNeeds
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.building import DOCKER
from zluda_stack.plan.gpu_reach import CPU_WAY
from zluda_stack.plan.profiles import traits
from zluda_stack.plan.types import EngineName, Notice
from zluda_stack.settings import Settings

# What the probe says where no docker command is on PATH (zluda_stack/host/docker.py).
_NOT_INSTALLED = "the docker command is not installed"


def engine_for(settings: Settings, *, on_card: bool) -> EngineName:
    """The engine that carries out a plan: what computes on a card, or has a page, is containers."""
    contained = on_card or settings.engine == "docker" or traits(settings.profile).has_page
    return "docker" if contained else "embedded"


def engine_needs(facts: HostFacts, engine: EngineName, needs: HostNeeds) -> tuple[Notice, ...]:
    """The first thing of `needs` that `engine` lacks here; nothing when it can start."""
    if engine == "embedded":
        return _embedded_needs(facts)
    lack = _docker_lacks(facts) or _plugins_lack(facts, needs)
    return () if lack is None else (Notice(code=DOCKER, message=lack[0], hint=lack[1]),)


def _docker_lacks(facts: HostFacts) -> tuple[str, str] | None:
    """(message, hint) for why there is no Docker Engine that answers."""
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
    return None


def _plugins_lack(facts: HostFacts, needs: HostNeeds) -> tuple[str, str] | None:
    """(message, hint) for an engine that is too old, or that lacks what builds and starts."""
    docker, compose = facts.docker, compose_version(facts)
    if engine_is_too_old(facts, needs):
        return (
            f"Docker Engine {docker.engine_version} is older than {needs.docker_engine.version}",
            f"Install a newer one; `zluda-stack doctor` names the command. {CPU_WAY}",
        )
    if compose is None or compose_is_too_old(facts, needs):
        answer = "does not answer" if compose is None else f"is {compose}"
        return (
            f"containers need Docker Compose v{needs.docker_compose.version}, and "
            f"`docker compose` {answer}",
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


def engine_is_too_old(facts: HostFacts, needs: HostNeeds) -> bool:
    """True for a Docker Engine below the oldest that will do; Podman has numbers of its own."""
    version = facts.docker.engine_version
    if version is None or facts.docker.emulated_by is not None:
        return False
    return _older(version, needs.docker_engine.version)


def compose_is_too_old(facts: HostFacts, needs: HostNeeds) -> bool:
    """True for a Compose below the oldest that will do; False where none answers."""
    version = compose_version(facts)
    return version is not None and _older(version, needs.docker_compose.version)


def _older(version: str, minimum: str) -> bool:
    """True when `version` begins with lower numbers; one that is no number is not judged."""
    wanted = [int(part) for part in minimum.split(".")]
    given = version.removeprefix("v").split(".")[: len(wanted)]
    if not all(part.isascii() and part.isdigit() for part in given):
        return False
    return [int(part) for part in given] < wanted


def _embedded_needs(facts: HostFacts) -> tuple[Notice, ...]:
    if not facts.embedded.missing:
        return ()
    return (
        Notice(
            code="embedded-packages",
            message=f"the embedded engine lacks {', '.join(facts.embedded.missing)}",
            hint="In the folder of zluda-stack's sources: pip install '.[embedded]'",
        ),
    )
