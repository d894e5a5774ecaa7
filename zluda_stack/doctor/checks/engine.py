"""The engine: what carries the plan out, and whether it answers."""

from __future__ import annotations

from zluda_stack.doctor.commands import install, use_default_context
from zluda_stack.doctor.subject import Subject
from zluda_stack.doctor.types import Check, Fix, Verdict, fail, ok, warn
from zluda_stack.plan.engine_needs import (
    compose_is_too_old,
    compose_version,
    docker_is_missing,
    engine_is_too_old,
)

_DENIED = "permission denied"


def _embedded(subject: Subject) -> Verdict:
    if subject.wants_docker:
        return ok()
    embedded = subject.facts.embedded
    if not embedded.missing:
        version = f" (xllamacpp {embedded.server_version})" if embedded.server_version else ""
        return ok(f"embedded{version}", rest="the embedded engine needs no Docker")
    return fail(
        f"the embedded engine lacks {', '.join(embedded.missing)}",
        "it runs llama.cpp's server out of Python packages that an extra of zluda-stack brings",
        Fix(
            command="pip install '.[embedded]'",
            then="That is for the folder of zluda-stack's sources.",
        ),
    )


def _podman_only(subject: Subject) -> Verdict:
    podman = subject.facts.podman
    if not docker_is_missing(subject.facts) or podman is None or podman.version is None:
        return ok()
    return fail(
        f"Podman {podman.version} is here, Docker is not",
        "`zluda-stack up` and `build` drive the Docker Engine with Compose and BuildKit",
        install(subject, "docker"),
    )


def _docker_missing(subject: Subject) -> Verdict:
    if not docker_is_missing(subject.facts):
        return ok()
    return fail(
        "the docker command is not installed",
        "the plan runs in containers; `zluda-stack up --engine embedded` needs none, on the CPU",
        install(subject, "docker"),
    )


def _podman_emulation(subject: Subject) -> Verdict:
    if subject.facts.docker.emulated_by is None:
        return ok()
    return warn(
        f"the command docker is {subject.facts.docker.emulated_by}'s",
        "nobody has shown that the images build and the stack runs with it",
        install(subject, "docker"),
    )


def _permission_denied(subject: Subject) -> Verdict:
    docker, user = subject.facts.docker, subject.facts.user
    if docker.problem is None or _DENIED not in docker.problem.lower():
        return ok()
    gid = docker.socket.gid if docker.socket else user.groups.get("docker")
    evidence = f"Docker's socket: {docker.problem}"
    if gid is not None and gid in user.configured_gids and gid not in user.gids:
        return fail(
            evidence,
            f"your user is in the socket's group {gid}, and this session is older than that",
            Fix(command="newgrp docker", then="Or log out and in again."),
        )
    return fail(
        evidence,
        "your user is not in the group that may use it (which is as powerful as root)",
        Fix(command='sudo usermod -aG docker "$USER"', then="Log out and in again."),
    )


def _not_answering(subject: Subject) -> Verdict:
    docker = subject.facts.docker
    if docker.problem is None and docker.engine_version is not None:
        return ok()
    context = docker.context or "default"
    evidence = "the Docker Engine does not answer"
    evidence += f": {docker.problem}" if docker.problem else ""
    to_default = use_default_context(subject)
    if context != "default" and to_default is not None:
        return fail(
            evidence, "the chosen context leads to an engine that is not running", to_default
        )
    start = "systemctl --user start docker" if docker.rootless else "sudo systemctl start docker"
    return fail(evidence, "it is not running, or not installed as a service", Fix(command=start))


def _too_old(subject: Subject) -> Verdict:
    docker, needs = subject.facts.docker, subject.catalog.host
    version = docker.engine_version
    if docker.emulated_by is not None:
        return ok(f"{docker.emulated_by} {version}")
    if not engine_is_too_old(subject.facts, needs):
        return ok(f"Docker Engine {version}")
    return fail(
        f"Docker Engine {version} is older than {needs.docker_engine.version}",
        "the images need its BuildKit, and the compose files its health checks",
        install(subject, "docker"),
    )


def _compose_missing(subject: Subject) -> Verdict:
    version = compose_version(subject.facts)
    needs = subject.catalog.host
    if version is not None and not compose_is_too_old(subject.facts, needs):
        return ok(f"Compose {version}")
    evidence = (
        "`docker compose` does not answer"
        if version is None
        else f"Compose {version} is older than {needs.docker_compose.version}"
    )
    reason = "the stack is a Compose project; the old docker-compose 1.x cannot read it"
    return fail(evidence, reason, install(subject, "compose"))


def _buildx_missing(subject: Subject) -> Verdict:
    docker = subject.facts.docker
    if docker.buildx_version is not None:
        return ok(f"buildx {docker.buildx_version}")
    if docker.emulated_by is not None:
        return ok()
    return fail(
        "`docker buildx` does not answer",
        "the images are built with BuildKit, which the docker command reaches through buildx",
        install(subject, "buildx"),
    )


CHECKS = (
    Check(id="engine.embedded-packages", look=_embedded),
    Check(id="engine.podman-only", look=_podman_only),
    Check(id="engine.docker-missing", look=_docker_missing),
    Check(id="engine.podman-emulation", look=_podman_emulation),
    Check(id="engine.permission-denied", look=_permission_denied),
    Check(id="engine.not-answering", look=_not_answering),
    Check(id="engine.docker-too-old", look=_too_old),
    Check(id="engine.compose-missing", look=_compose_missing),
    Check(id="engine.buildx-missing", look=_buildx_missing),
)
