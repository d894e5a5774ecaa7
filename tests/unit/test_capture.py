"""A capture is a bug report: nothing personal is in it, and it replays to the same facts."""

from __future__ import annotations

import os
import types
import typing
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from msgspec import Struct, structs

from tests.unit.planning import CASES, host
from zluda_stack.errors import UsageError
from zluda_stack.host.capture import load, save, without_personal_details
from zluda_stack.host.facts import (
    CdiSpec,
    DeviceNode,
    DockerFacts,
    GpuFacts,
    HostFacts,
    PodmanFacts,
    UserFacts,
)

HOME = Path("/home/mara")
NAMES = {"mara": "USER", "pellworm": "HOST", "pellworm.lan": "HOST"}
PERSONAL = ("mara", "pellworm", "a1b2c3d4e5f60718", "192.0.2.7", "build.example", "/1000/")
TEXTS = (
    "mara",
    "pellworm.lan",
    "/home/mara/models/x.gguf",
    "~mara: cannot open '/home/mara/.docker/config.json': no such file",
    "Cannot connect to the Docker daemon at unix:///run/user/1000/docker.sock",
    "error during connect: tcp://192.0.2.7:2376",
    "dial tcp 192.0.2.7:2376: i/o timeout",
    "ssh://mara@build.example:22",
    "GPU-a1b2c3d4e5f60718",
)


def stuffed(kind: Any, text: str) -> Any:  # noqa: PLR0911
    """A value of the type `kind` that has `text` wherever it may be."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is str:
        return text
    if origin is Literal:
        return arguments[0]
    if origin in (typing.Union, types.UnionType):
        return stuffed(arguments[0], text)
    if origin is tuple:
        return (stuffed(arguments[0], text),)
    if origin is dict:
        return {stuffed(arguments[0], text): stuffed(arguments[1], text)}
    if isinstance(kind, type) and issubclass(kind, Struct):
        fields = typing.get_type_hints(kind)
        return kind(**{name: stuffed(field, text) for name, field in fields.items()})
    return kind()


def anonymous(facts: HostFacts) -> HostFacts:
    return without_personal_details(facts, HOME, NAMES)


@pytest.mark.parametrize("text", TEXTS)
def test_nothing_personal_is_left_in_any_field(text: str) -> None:
    facts: HostFacts = stuffed(HostFacts, text)
    assert text in repr(facts)
    left = msgspec.json.encode(anonymous(facts)).decode()
    assert [word for word in PERSONAL if word in left] == []


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_anonymous_stays_as_it_is(text: str) -> None:
    once = anonymous(stuffed(HostFacts, text))
    assert without_personal_details(once, Path("/home/other"), {"other": "USER"}) == once


def test_this_users_and_machines_names_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "mara.p")
    monkeypatch.setattr("platform.node", lambda: "pellworm.lan")
    facts = structs.replace(host("radeon-rx-7900-xtx"), distribution="mara.p's pellworm OS of mara")
    left = without_personal_details(facts, Path("/srv/people/mara"))
    assert left.distribution == "USER's HOST OS of USER"


def test_unique_ids_go_and_still_tell_devices_apart() -> None:
    names = ("GPU-a1b2c3d4e5f60718", "GPU-ffffffffffffffff")
    nodes: dict[str, tuple[str, ...]] = dict.fromkeys(names, ("/dev/kfd",))
    facts = structs.replace(
        host("radeon-rx-7900-xtx"),
        gpus=(GpuFacts(kfd_node=1, gfx_target="gfx1100", unique_id=names[0]),),
        environment={"ROCR_VISIBLE_DEVICES": names[0]},
        cdi=(CdiSpec(path="/etc/cdi/amd.json", kind="amd.com/gpu", devices=names, nodes=nodes),),
    )
    left = anonymous(facts)
    assert left.gpus[0].unique_id is None
    assert len(set(left.cdi[0].devices)) == 2
    assert tuple(left.cdi[0].nodes) == left.cdi[0].devices
    assert left.environment["ROCR_VISIBLE_DEVICES"] in left.cdi[0].devices


def test_only_groups_of_graphics_and_docker_are_kept() -> None:
    facts = structs.replace(
        host("kfd-gid-148"),
        user=UserFacts(
            gids=(4, 148, 998, 1000, 4711),
            configured_gids=(148, 992, 993, 1000),
            groups={"render": 992, "docker": 998},
        ),
    )
    left = anonymous(facts).user
    assert (left.gids, left.configured_gids) == ((148, 998), (148, 992, 993))
    assert left.groups == {"render": 992, "docker": 998}


def test_names_of_contexts_go_and_the_current_one_is_still_among_them() -> None:
    docker = DockerFacts(context="buildbox", contexts=("buildbox", "default", "desktop-linux"))
    left = anonymous(structs.replace(host("radeon-rx-7900-xtx"), docker=docker)).docker
    assert left.contexts == (left.context, "default", "desktop-linux")
    assert left.context == "context-1"


def test_the_words_of_an_engine_elsewhere_are_left_out() -> None:
    docker = DockerFacts(remote=True, problem="command [ssh -l m -- box docker system dial-stdio]")
    left = anonymous(structs.replace(host("radeon-rx-7900-xtx"), docker=docker)).docker
    assert left.problem == "the engine on another machine did not answer"


@pytest.mark.parametrize(
    ("home", "before", "after"),
    [
        ("/home/mara", "/home/mara/a", "~/a"),
        ("/home/mara", "/home/mara", "~"),
        ("/home/mara", "/home/marathon/a", "/home/USER/a"),
        ("/home/mara", "/data/home/x", "/data/home/x"),
        ("/root", "/root/.local/share/docker", "~/.local/share/docker"),
        ("/", "/var/lib/docker", "/var/lib/docker"),
    ],
)
def test_paths_under_a_home_folder_are_shortened(home: str, before: str, after: str) -> None:
    facts = structs.replace(host("radeon-rx-7900-xtx"), docker=DockerFacts(data_root=before))
    assert without_personal_details(facts, Path(home), {}).docker.data_root == after


@pytest.mark.parametrize("name", ["root", "docker", "amd", "video", "kernel", "path", "gids"])
def test_a_name_that_facts_use_too_breaks_none_of_them(name: str) -> None:
    facts = structs.replace(
        host("radeon-rx-7900-xtx"),
        container="docker",
        podman=PodmanFacts(version="5.6.2"),
        kfd=DeviceNode(path="/dev/kfd", gid=1, accessible=True),
        user=UserFacts(groups={"render": 1, "video": 2}),
    )
    left = without_personal_details(facts, Path("/home") / name, {name: "USER"})
    assert left == structs.replace(facts, gpus=left.gpus)


def test_what_looks_like_an_address_and_is_none_stays() -> None:
    facts = structs.replace(
        host("wsl2"),
        kernel="5.15.153.1-microsoft-standard-WSL2",
        docker=DockerFacts(problem="dial tcp 127.0.0.1:2375: connection refused"),
    )
    left = anonymous(facts)
    assert left.kernel == facts.kernel
    assert left.docker.problem == facts.docker.problem


@pytest.mark.parametrize("case", sorted(path.stem for path in CASES.glob("*.json")))
def test_a_capture_replays_to_the_same_facts(case: str, tmp_path: Path) -> None:
    facts = anonymous(host(case))
    save(facts, tmp_path / "host.json")
    assert load(tmp_path / "host.json") == facts


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "Input data was truncated"),
        ("[" * 100_000, "is not a host capture"),
        ('{"system": "Linux"}', "missing required field"),
        ('{"cpu_count": 1e400}', "out of range"),
        (" " * (5 << 20), "more than 4 MiB"),
        ("\0\1\2", "is not a host capture"),
    ],
)
def test_a_file_that_is_no_capture_is_refused_with_the_reason(
    tmp_path: Path, content: str, reason: str
) -> None:
    file = tmp_path / "host.json"
    file.write_text(content)
    with pytest.raises(UsageError) as raised:
        load(file)
    assert str(file) in raised.value.message
    assert reason in raised.value.message
    assert "doctor --capture" in raised.value.hint


def test_a_folder_in_the_place_of_a_capture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a regular file"):
        load(tmp_path)


def test_a_pipe_that_nobody_writes_to_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "host.json"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="not a regular file"):
        load(pipe)
