"""What the docker command line says of itself and of its engine, within a bound of time."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field, structs

from zluda_stack.host import podman, reading
from zluda_stack.host.commands import BOUND_S, Answer, Asking, ask, version_in
from zluda_stack.host.facts import DeviceNode, DockerFacts
from zluda_stack.host.nodes import device_node

_JSON = ("--format", "{{json .}}")
_EMULATION = re.compile(r"^podman version|^Emulate Docker CLI using podman", re.MULTILINE)
_DEFAULT_CONTEXT = "default"
_DEFAULT_ENDPOINT = "unix:///var/run/docker.sock"
_DESKTOP = "Docker Desktop"
_DESKTOP_CONTEXT = "desktop-linux"
_DESKTOP_FOLDER = "/.docker/desktop/"
_PODMAN_SOCKET = "podman.sock"
_CONTAINERD_STORE = ["driver-type", "io.containerd.snapshotter.v1"]
_CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
_CONTAINERD_FOLDER = "/var/lib/containerd"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MOST_CONTEXTS = 64
# So long `docker info` is waited for alone. A docker that starts slowly is asked all at once.
_ALONE_S = 0.3
_NOTHING = Answer("", "no answer")


class _Context(Struct, frozen=True, rename="pascal"):
    """A line of `docker context ls`."""

    name: str = ""
    current: bool = False
    docker_endpoint: str = ""


class _Plugin(Struct, frozen=True, rename="pascal"):
    name: str = ""
    version: str = ""


class _Client(Struct, frozen=True, rename="pascal"):
    """What the command says of itself; an old one leaves its version out."""

    version: str = ""
    context: str = ""
    plugins: list[_Plugin] | None = None


class _Containerd(Struct, frozen=True, rename="pascal"):
    address: str = ""


class _Info(Struct, frozen=True, rename="pascal"):
    """The part of `docker info` that is read: types/system in github.com/moby/moby, api."""

    server_version: str = ""
    server_errors: list[str] | None = None
    operating_system: str = ""
    security_options: list[str] | None = None
    runtimes: dict[str, Any] | None = None
    default_runtime: str = ""
    docker_root_dir: str = ""
    driver_status: list[list[str]] | None = None
    containerd: _Containerd | None = None
    cdi_spec_dirs: list[str] | None = field(default=None, name="CDISpecDirs")
    client_info: _Client | None = None


_Read = TypeVar("_Read", _Info, _Context)


def read_docker(environ: Mapping[str, str], root: Path = Path("/")) -> DockerFacts:
    """The facts of the docker command on PATH; `problem` is set when its engine is of no use.

    `docker info` is asked alone where it soon tells all: each run of the command takes a tenth of
    what `plan` takes. The versions of Compose and buildx are those that it lists with its plugins:
    no further program runs for them, and they are None when the engine does not answer in time.
    """
    program = shutil.which("docker", path=environ.get("PATH"))
    if program is None:
        return DockerFacts(problem="the docker command is not installed")
    asking = Asking((program, "info", *_JSON), environ)
    soon = asking.answer(_ALONE_S) or _NOTHING
    client = _decoded(soon.output, _Info).client_info or _Client()
    alone = _is_only_context(client, environ)
    questions = {
        "version": () if client.version else (program, "--version"),
        "contexts": () if alone else (program, "context", "ls", *_JSON),
    }
    open_ones = {about: question for about, question in questions.items() if question}
    rest = ask([*open_ones.values()], environ, BOUND_S - _ALONE_S)
    answers = dict(zip(open_ones, rest, strict=True))
    version, contexts = (answers.get(about, _NOTHING) for about in questions)
    info = asking.answer() or _NOTHING
    # What `docker info` tells late counts for what was asked meanwhile and had no answer.
    client = _decoded(info.output, _Info).client_info or client
    alone = alone or (not contexts.output and _is_only_context(client, environ))
    if _EMULATION.search(f"{version.output}\n{version.complaint}"):
        return podman.as_docker(version_in(version.output), info, root)
    found = [_default_context(environ)] if alone else _contexts(contexts.output, environ)
    return _facts(client.version or version_in(version.output), info, found, root)


def _facts(client: str | None, answer: Answer, contexts: list[_Context], root: Path) -> DockerFacts:
    info = _decoded(answer.output, _Info)
    current = next((one for one in contexts if one.current), _Context())
    socket = _socket(current.docker_endpoint, root)
    facts = DockerFacts(
        client_version=client,
        context=current.name or None,
        contexts=tuple(one.name for one in contexts if one.name),
        emulated_by="podman" if socket and _is_podmans(socket, root) else None,
        remote=_is_remote(current.docker_endpoint),
        socket=socket,
        compose_version=_plugin(info, "compose"),
        buildx_version=_plugin(info, "buildx"),
    )
    if not info.server_version:
        expected = _is_desktops(current) or None
        return structs.replace(facts, desktop=expected, problem=_problem(info, answer))
    return _with_engine(facts, info, root)


def _with_engine(facts: DockerFacts, info: _Info, root: Path) -> DockerFacts:
    desktop = info.operating_system.startswith(_DESKTOP)
    folder = _image_folder(info)
    here = folder is not None and not desktop and not facts.remote
    return structs.replace(
        facts,
        engine_version=info.server_version,
        operating_system=info.operating_system or None,
        rootless=any("name=rootless" in option for option in info.security_options or ()),
        desktop=desktop,
        runtimes=tuple(sorted(info.runtimes or ())),
        default_runtime=info.default_runtime or None,
        cdi_enabled=bool(info.cdi_spec_dirs),
        data_root=folder,
        free_bytes=reading.free_bytes(root / folder.lstrip("/")) if here and folder else None,
    )


def _problem(info: _Info, answer: Answer) -> str:
    told = " ".join(" ".join(info.server_errors or ()).split())
    return told or answer.complaint or "the Docker Engine did not answer"


def _plugin(info: _Info, name: str) -> str | None:
    plugins = info.client_info.plugins if info.client_info else None
    versions = (plugin.version for plugin in plugins or () if plugin.name == name)
    return next(versions, "").removeprefix("v") or None


def _image_folder(info: _Info) -> str | None:
    """Where images take room: the engine's folder, or that of the system's own containerd."""
    address = info.containerd.address if info.containerd else ""
    if address == _CONTAINERD_SOCKET and _CONTAINERD_STORE in (info.driver_status or ()):
        return _CONTAINERD_FOLDER
    return info.docker_root_dir or None


def _is_only_context(client: _Client, environ: Mapping[str, str]) -> bool:
    """True when the context in use is the default one, and there is no folder with others."""
    home = environ.get("HOME")
    folder = environ.get("DOCKER_CONFIG") or (f"{home}/.docker" if home else None)
    return (
        client.context == _DEFAULT_CONTEXT
        and folder is not None
        and not reading.kind(Path(folder) / "contexts")
    )


def _default_context(environ: Mapping[str, str]) -> _Context:
    endpoint = environ.get("DOCKER_HOST") or _DEFAULT_ENDPOINT
    return _Context(name=_DEFAULT_CONTEXT, current=True, docker_endpoint=endpoint)


def _contexts(lines: str, environ: Mapping[str, str]) -> list[_Context]:
    """The contexts; DOCKER_HOST, which docker obeys first, where it could not list any."""
    found = [_decoded(line, _Context) for line in lines.splitlines()[:_MOST_CONTEXTS]]
    if any(context.current for context in found):
        return found
    return [*found, _Context(current=True, docker_endpoint=environ.get("DOCKER_HOST", ""))]


def _decoded(text: str, kind: type[_Read]) -> _Read:
    """What `text` says, or nothing at all: a value of another type is no docker's answer."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return kind()


def _is_remote(endpoint: str) -> bool | None:
    if not endpoint:
        return None
    try:
        address = urlsplit(endpoint)
    except ValueError:
        return None
    return address.scheme in ("tcp", "ssh", "http", "https") and address.hostname not in _LOOPBACK


def _is_desktops(context: _Context) -> bool:
    return context.name == _DESKTOP_CONTEXT or _DESKTOP_FOLDER in context.docker_endpoint


def _socket(endpoint: str, root: Path) -> DeviceNode | None:
    scheme, _, path = endpoint.partition("://")
    return device_node(root, path) if scheme == "unix" and path else None


def _is_podmans(socket: DeviceNode, root: Path) -> bool:
    """Podman's service speaks Docker's language; podman-docker links docker.sock to its socket."""
    real = os.path.realpath(root / socket.path.lstrip("/"))
    return real.rpartition("/")[2] == _PODMAN_SOCKET
