"""Which container engine is there, asked of fake docker and podman commands."""

from __future__ import annotations

import json
import os
import shlex
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from zluda_stack.host import commands, docker
from zluda_stack.host.commands import BOUND_S
from zluda_stack.host.docker import read_docker
from zluda_stack.host.podman import read_podman
from zluda_stack.host.probe import probe

EMULATION = "Emulate Docker CLI using podman. Create /etc/containers/nodocker to quiet msg."
NOT_RUNNING = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock."
INFO: dict[str, Any] = {
    "ServerVersion": "28.5.1",
    "OperatingSystem": "Ubuntu 24.04.3 LTS",
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"],
    "Runtimes": {"runc": {"path": "runc"}, "amd": {"path": "amd-container-runtime"}},
    "DefaultRuntime": "runc",
    "DockerRootDir": "/var/lib/docker",
    "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
    "ClientInfo": {
        "Context": "default",
        "Plugins": [
            {"Name": "buildx", "Version": "v0.29.1"},
            {"Name": "compose", "Version": "v2.40.2"},
        ],
    },
}
PODMAN_INFO = {
    "host": {"security": {"rootless": True}, "ociRuntime": {"name": "crun"}},
    "store": {"graphRoot": "/home/me/.local/share/containers/storage"},
    "version": {"Version": "5.6.2"},
}


class FakePath:
    """A PATH with fake programs, which answer by their first argument."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def program(self, name: str, **answers: str) -> None:
        """Add a program; `answers` are shell commands by first argument, with -- or without."""
        cases = "".join(f"{key}|--{key}) {script};;\n" for key, script in answers.items())
        file = self.folder / name
        file.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}*) exit 1;;\nesac\n')
        file.chmod(0o755)

    def docker(
        self,
        info: object = INFO,
        endpoint: str = "unix:///var/run/docker.sock",
        name: str = "default",
    ) -> None:
        """Add a docker whose current context is `name`, beside one called spare."""
        contexts = [
            {"Name": "spare", "Current": False, "DockerEndpoint": "tcp://192.0.2.7:2376"},
            {"Name": name, "Current": True, "DockerEndpoint": endpoint},
        ]
        self.program(
            "docker",
            version="echo Docker version 28.5.1, build e180ab8",
            info=say(info),
            context="; ".join(map(say, contexts)),
        )

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": f"{self.folder}:/usr/bin:/bin"}


def say(answer: object) -> str:
    """A shell command that prints `answer` as JSON."""
    return f"printf '%s\\n' {shlex.quote(json.dumps(answer))}"


def ends(process: int) -> bool:
    """Whether that process is gone, or a zombie which only waits for its parent, soon."""
    command = Path("/proc", str(process), "cmdline")
    for _ in range(100):
        if not command.exists() or not command.read_bytes():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePath:
    for kind in ("STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    folder = tmp_path / "bin"
    folder.mkdir()
    return FakePath(folder)


def test_an_engine_is_described_by_its_own_words(path: FakePath, tmp_path: Path) -> None:
    path.docker()
    (tmp_path / "var/lib").mkdir(parents=True)
    facts = read_docker(path.environ, tmp_path)
    assert facts.problem is None
    assert (facts.client_version, facts.engine_version) == ("28.5.1", "28.5.1")
    assert (facts.compose_version, facts.buildx_version) == ("2.40.2", "0.29.1")
    assert (facts.context, facts.contexts) == ("default", ("spare", "default"))
    assert (facts.rootless, facts.desktop, facts.remote) == (False, False, False)
    assert (facts.runtimes, facts.default_runtime) == (("amd", "runc"), "runc")
    assert (facts.cdi_enabled, facts.data_root) == (True, "/var/lib/docker")
    assert facts.free_bytes is not None
    assert facts.emulated_by is None


@pytest.mark.parametrize("host", [None, "tcp://192.0.2.7:2376"])
def test_a_docker_that_tells_all_of_itself_is_asked_once(
    path: FakePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str | None
) -> None:
    monkeypatch.setattr(docker, "_ALONE_S", BOUND_S)  # also on a busy machine
    client = INFO["ClientInfo"] | {"Version": "28.5.1"}
    asked = tmp_path / "asked"
    asks = f"echo >> {asked}; {say(INFO | {'ClientInfo': client})}"
    path.program("docker", info=asks, version="exit 1", context="exit 1")
    environ = path.environ | {"HOME": str(tmp_path)} | ({"DOCKER_HOST": host} if host else {})
    facts = read_docker(environ, tmp_path)
    assert asked.read_text() == "\n"
    assert (facts.client_version, facts.compose_version) == ("28.5.1", "2.40.2")
    assert (facts.context, facts.contexts, facts.remote) == ("default", ("default",), bool(host))


@pytest.mark.parametrize("variable", ["HOME", "DOCKER_CONFIG"])
def test_a_docker_with_other_contexts_is_asked_for_them(
    path: FakePath, tmp_path: Path, variable: str
) -> None:
    path.docker(INFO | {"ClientInfo": INFO["ClientInfo"] | {"Version": "28.5.1"}})
    folder = {"HOME": tmp_path / ".docker", "DOCKER_CONFIG": tmp_path}[variable]
    (folder / "contexts" / "meta").mkdir(parents=True)
    facts = read_docker(path.environ | {variable: str(tmp_path)}, tmp_path)
    assert facts.contexts == ("spare", "default")


def test_without_docker_that_is_said(path: FakePath) -> None:
    assert read_docker({"PATH": str(path.folder)}).problem == "the docker command is not installed"


def test_a_rootless_engine_is_told(path: FakePath) -> None:
    path.docker(INFO | {"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]})
    assert read_docker(path.environ).rootless is True


def test_docker_desktop_is_told_from_docker_engine(path: FakePath) -> None:
    path.docker(INFO | {"OperatingSystem": "Docker Desktop"}, name="desktop-linux")
    facts = read_docker(path.environ)
    assert (facts.desktop, facts.context) == (True, "desktop-linux")
    assert facts.free_bytes is None, "its images are in a virtual machine"


def test_docker_desktop_is_told_while_it_does_not_run(path: FakePath) -> None:
    path.docker(
        {"ServerErrors": ["Cannot connect"]},
        endpoint="unix:///home/me/.docker/desktop/docker.sock",
        name="desktop-linux",
    )
    facts = read_docker(path.environ)
    assert (facts.desktop, facts.problem) == (True, "Cannot connect")


@pytest.mark.parametrize(
    ("endpoint", "remote"),
    [
        ("tcp://192.0.2.7:2376", True),
        ("ssh://me@build.example", True),
        ("tcp://127.0.0.1:2375", False),
        ("unix:///run/user/1000/docker.sock", False),
        ("tcp://[", None),
    ],
)
def test_an_engine_on_another_machine_is_remote(
    path: FakePath, endpoint: str, remote: bool | None
) -> None:
    path.docker(endpoint=endpoint)
    facts = read_docker(path.environ)
    assert facts.remote is remote
    assert (facts.free_bytes is None) or not remote


def test_docker_host_counts_where_docker_lists_no_context(path: FakePath) -> None:
    path.program("docker", version="echo Docker version 19.03.8, build x", info="exit 1")
    facts = read_docker(path.environ | {"DOCKER_HOST": "ssh://build.example"})
    assert facts.remote is True


def test_the_socket_is_looked_at(path: FakePath, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "docker.sock"))
        path.docker(endpoint="unix:///docker.sock")
        facts = read_docker(path.environ, tmp_path)
    assert facts.socket is not None
    assert (facts.socket.path, facts.socket.accessible) == ("/docker.sock", True)


def test_images_of_the_systems_containerd_are_not_in_dockers_folder(path: FakePath) -> None:
    """The default of new installations of Docker Engine 29."""
    snapshotter = {"DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}
    path.docker(INFO | snapshotter | {"Containerd": {"Address": "/run/containerd/containerd.sock"}})
    assert read_docker(path.environ).data_root == "/var/lib/containerd"
    path.docker(INFO | snapshotter | {"Containerd": {"Address": "/run/docker/containerd.sock"}})
    assert read_docker(path.environ).data_root == "/var/lib/docker"


def test_a_stopped_engine_is_reported_in_its_own_words(path: FakePath) -> None:
    path.docker({"ServerErrors": [NOT_RUNNING + "\n Is it running?"], "ClientInfo": {}})
    facts = read_docker(path.environ)
    assert facts.client_version == "28.5.1"
    assert facts.problem == f"{NOT_RUNNING} Is it running?"
    assert (facts.engine_version, facts.rootless, facts.cdi_enabled) == (None, None, None)


def test_a_complaint_counts_where_there_is_no_answer(path: FakePath) -> None:
    path.program(
        "docker",
        version="echo Docker version 28.5.1, build x",
        info=f"echo '{NOT_RUNNING}' >&2; exit 1",
    )
    assert read_docker(path.environ).problem == NOT_RUNNING


@pytest.mark.parametrize("answer", ["[1, 2]", '{"ServerVersion": 3}', "{", "", "null", '"\\ud800"'])
def test_a_docker_that_prints_nonsense_is_a_problem_and_no_error(
    path: FakePath, answer: str
) -> None:
    nonsense = f"echo '{answer}'"
    path.program("docker", version=nonsense, info=nonsense, context=nonsense)
    facts = read_docker(path.environ)
    assert facts.client_version is None
    assert facts.problem


def test_a_docker_that_hangs_is_left_behind_within_two_seconds(
    path: FakePath, tmp_path: Path
) -> None:
    """The shell's child holds the pipes; it must neither be waited for nor left running."""
    child = tmp_path / "child"
    path.program(
        "docker",
        version="echo Docker version 28.5.1, build x",
        info=f"sleep 60 & echo $! > {child}; wait",
        context=say({"Name": "default", "Current": True}),
    )
    started = time.monotonic()
    docker = probe(None, path.environ, tmp_path).docker
    assert time.monotonic() - started < 2
    assert (docker.client_version, docker.context) == ("28.5.1", "default")
    assert docker.problem == f"no answer within {BOUND_S} s"
    assert ends(int(child.read_text()))


def slowly(script: str) -> str:
    """The shell command `script`, of a program that takes its time to start."""
    return f"sleep 0.5; {script}"


def test_a_docker_that_starts_slowly_tells_all_the_same(path: FakePath, tmp_path: Path) -> None:
    path.program(
        "docker",
        version=slowly("echo Docker version 28.5.1, build x"),
        info=slowly(say(INFO)),
        context=slowly(say({"Name": "default", "Current": True})),
    )
    facts = read_docker(path.environ, tmp_path)
    assert (facts.problem, facts.engine_version) == (None, "28.5.1")
    assert (facts.client_version, facts.context) == ("28.5.1", "default")


def test_what_docker_tells_late_of_itself_counts_for_what_it_does_not_answer(
    path: FakePath, tmp_path: Path
) -> None:
    client = INFO["ClientInfo"] | {"Version": "28.5.1"}
    path.program(
        "docker",
        version="exec sleep 30",
        info=slowly(say(INFO | {"ClientInfo": client})),
        context="exec sleep 30",
    )
    facts = read_docker(path.environ | {"HOME": str(tmp_path)}, tmp_path)
    assert (facts.client_version, facts.context) == ("28.5.1", "default")


def test_a_desktop_that_sleeps_is_known_by_its_context(path: FakePath, tmp_path: Path) -> None:
    path.program(
        "docker",
        version=slowly("echo Docker version 28.0.1, build x"),
        info="exec sleep 30",
        context=slowly(say({"Name": "desktop-linux", "Current": True})),
    )
    facts = read_docker(path.environ, tmp_path)
    assert (facts.client_version, facts.context) == ("28.0.1", "desktop-linux")
    assert facts.desktop is True


def test_podman_that_starts_slowly_as_docker_is_podman(path: FakePath, tmp_path: Path) -> None:
    path.program(
        "docker",
        version=slowly("echo podman version 5.6.2"),
        info=slowly(say(PODMAN_INFO)),
        context="exit 125",
    )
    facts = read_docker(path.environ, tmp_path)
    assert (facts.emulated_by, facts.client_version) == ("podman", "5.6.2")


def test_a_docker_that_never_stops_talking_fills_no_memory(
    path: FakePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "BOUND_S", 0.3)
    path.program("docker", info="exec yes")
    (answer,) = commands.ask([(str(path.folder / "docker"), "info")], path.environ)
    assert 2**20 < len(answer.output) < 2**21


def test_a_program_that_cannot_be_started_is_a_complaint(path: FakePath) -> None:
    file = path.folder / "docker"
    file.write_text("#!/no/such/interpreter\n")
    file.chmod(0o755)
    assert "No such file" in str(read_docker(path.environ).problem)


def test_podman_under_the_name_of_docker_is_told(path: FakePath) -> None:
    path.program(
        "docker",
        version=f"echo '{EMULATION}' >&2; echo podman version 5.6.2",
        info=f"echo '{EMULATION}' >&2; {say(PODMAN_INFO)}",
    )
    facts = read_docker(path.environ)
    assert (facts.emulated_by, facts.engine_version) == ("podman", "5.6.2")
    assert (facts.rootless, facts.desktop, facts.remote) == (True, False, False)
    assert facts.default_runtime == "crun"
    assert facts.problem is None


def test_podmans_service_behind_docker_is_told(path: FakePath, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "podman.sock"))
        (tmp_path / "docker.sock").symlink_to("podman.sock")
        path.docker(endpoint="unix:///docker.sock")
        assert read_docker(path.environ, tmp_path).emulated_by == "podman"


def test_podman_is_asked_for_its_engine_where_there_is_no_docker(path: FakePath) -> None:
    path.program(
        "podman",
        version="echo podman version 5.6.2",
        info=say(PODMAN_INFO),
        compose="echo podman-compose version 1.5.0; echo podman version 5.6.2",
    )
    facts = read_podman({"PATH": str(path.folder)})
    assert facts is not None
    assert (facts.version, facts.compose_version, facts.rootless) == ("5.6.2", "1.5.0", True)
    assert facts.problem is None


def test_a_podman_that_does_not_work_says_why(path: FakePath) -> None:
    path.program(
        "podman",
        version="echo podman version 5.6.2",
        info="echo Error: cannot find UID/GID for user >&2; exit 125",
    )
    facts = read_podman({"PATH": str(path.folder)})
    assert facts is not None
    assert facts.problem == "Error: cannot find UID/GID for user"
    assert (facts.rootless, facts.compose_version) == (None, None)


def test_podman_beside_docker_makes_no_storage(path: FakePath) -> None:
    mark = path.folder / "asked"
    path.docker()
    path.program("podman", version="echo podman version 5.6.2", info=f"touch {mark}")
    facts = read_podman(path.environ)
    assert facts is not None
    assert (facts.version, facts.rootless) == ("5.6.2", os.geteuid() != 0)
    assert not mark.exists()


def test_without_podman_there_are_no_facts_of_it(path: FakePath) -> None:
    assert read_podman({"PATH": str(path.folder)}) is None
