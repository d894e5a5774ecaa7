"""The podman command, which may also be what stands behind the name docker."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from zluda_stack.host import reading
from zluda_stack.host.commands import Answer, ask, version_in
from zluda_stack.host.facts import DockerFacts, PodmanFacts


class _Security(Struct, frozen=True):
    rootless: bool = False


class _Runtime(Struct, frozen=True):
    name: str = ""


class _Host(Struct, frozen=True, rename="camel"):
    security: _Security = _Security()
    oci_runtime: _Runtime | None = None
    service_is_remote: bool = False


class _Store(Struct, frozen=True, rename="camel"):
    graph_root: str = ""


class _Info(Struct, frozen=True):
    """The part of `podman info` that is read: libpod/define in github.com/containers/podman."""

    host: _Host
    store: _Store = _Store()


def read_podman(environ: Mapping[str, str]) -> PodmanFacts | None:
    """The facts of the podman command on PATH; None when there is none.

    Its engine is asked only where there is no docker command: the first `podman info` of a user
    makes that user's storage, which somebody who works with Docker has not asked for.
    """
    path = environ.get("PATH")
    program = shutil.which("podman", path=path)
    if program is None:
        return None
    questions = [(program, "--version"), (program, "compose", "version")]
    if shutil.which("docker", path=path) is None:
        questions.append((program, "info", "--format", "json"))
    version, compose, *info = ask(questions, environ)
    rootless, problem = _engine(info[0]) if info else (os.geteuid() != 0, None)
    return PodmanFacts(
        version=version_in(version.output),
        rootless=rootless,
        compose_version=version_in(compose.output),
        problem=problem,
    )


def as_docker(version: str | None, answer: Answer, root: Path) -> DockerFacts:
    """The facts of a docker command that is podman's: `answer` is to its `docker info`."""
    info = _decoded(answer)
    if info is None:
        return DockerFacts(client_version=version, emulated_by="podman", problem=_complaint(answer))
    folder = info.store.graph_root or None
    here = folder is not None and not info.host.service_is_remote
    runtime = info.host.oci_runtime.name if info.host.oci_runtime else ""
    return DockerFacts(
        client_version=version,
        engine_version=version,
        emulated_by="podman",
        rootless=info.host.security.rootless,
        desktop=False,
        remote=info.host.service_is_remote,
        runtimes=(runtime,) if runtime else (),
        default_runtime=runtime or None,
        data_root=folder,
        free_bytes=reading.free_bytes(root / folder.lstrip("/")) if here and folder else None,
    )


def _engine(answer: Answer) -> tuple[bool | None, str | None]:
    info = _decoded(answer)
    return (None, _complaint(answer)) if info is None else (info.host.security.rootless, None)


def _complaint(answer: Answer) -> str:
    return answer.complaint or "podman did not answer"


def _decoded(answer: Answer) -> _Info | None:
    try:
        return msgspec.json.decode(answer.output, type=_Info)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
