"""A build's cost is said before it starts, and a disk that cannot hold it stops it (C18)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from docker import DockerClient
from docker.errors import ImageNotFound

from tests.unit.command_line import CASES, NO_GPU, run, settle
from tests.unit.planning import host, plan_for
from zluda_stack.engines.docker.estimate import BuildCost, duration, estimate, require_room
from zluda_stack.engines.docker.supply import by_name, here, nowhere, tags_here
from zluda_stack.errors import HostProblem
from zluda_stack.host import commands


class FakeEngine:
    """An engine without any image, as far as an estimate asks it."""

    base_url = "http+docker://localhost"

    def __init__(self, **info: str) -> None:
        self._info = {"DockerRootDir": "/var/lib/docker"} | info
        self.api = self.images = self

    def info(self) -> dict[str, str]:
        return self._info

    def get(self, tag: str) -> None:
        raise ImageNotFound(tag)


def _estimated(monkeypatch: pytest.MonkeyPatch, free_gb: int, **info: str) -> BuildCost:
    """The cost of a stack for a card, with so much disk left on this machine."""
    left = SimpleNamespace(free=free_gb * 10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: left)
    images = plan_for(host("radeon-rx-7900-xtx")).images
    client = cast(DockerClient, FakeEngine(**info))
    return estimate(client, here(client, images))


def _cost(*, minutes: float = 0, disk_gb: float = 0, free_gb: float | None = None) -> BuildCost:
    return BuildCost(
        images=(),
        minutes=minutes,
        disk_gb=disk_gb,
        memory_gb=8,
        free_gb=free_gb,
        storage="/var/lib/docker",
    )


def test_a_disk_that_is_too_small_is_refused_with_both_numbers_and_a_way_out() -> None:
    with pytest.raises(HostProblem) as refused:
        require_room(_cost(disk_gb=60, free_gb=30))

    assert "60 GB" in refused.value.message
    assert "30 GB" in refused.value.message
    assert "/var/lib/docker" in refused.value.message
    assert "docker buildx prune" in refused.value.hint


def test_a_stack_for_a_card_is_measured_against_the_disk_before_it_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(HostProblem, match="30 GB free"):
        require_room(_estimated(monkeypatch, 30))
    require_room(_estimated(monkeypatch, 500))


def test_the_disk_of_docker_desktop_is_not_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _estimated(monkeypatch, 30, OperatingSystem="Docker Desktop").free_gb is None


@pytest.mark.parametrize("free_gb", [60, 61, None])
def test_enough_room_and_an_unknown_disk_let_the_build_start(free_gb: float | None) -> None:
    require_room(_cost(disk_gb=60, free_gb=free_gb))


def test_only_hours_and_many_gigabytes_ask_for_consent() -> None:
    assert _cost(minutes=200).is_large
    assert _cost(disk_gb=40).is_large
    assert not _cost(minutes=8, disk_gb=2).is_large


def test_times_are_told_as_people_say_them() -> None:
    assert duration(0.2) == "1 min"
    assert duration(42) == "42 min"
    assert duration(210) == "3.5 h"


def test_the_summary_names_time_disk_and_memory() -> None:
    told = _cost(minutes=210, disk_gb=45).summary

    assert "3.5 h" in told
    assert "45.0 GB of disk" in told
    assert "8.0 GB of memory" in told


@pytest.mark.parametrize("command", [("plan",), ("up", "--dry-run")])
def test_who_only_looks_is_told_what_the_first_build_takes(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(tmp_path, monkeypatch)
    card = ("--host-facts", str(CASES / "radeon-rx-7900-xtx.json"), "--accept-cuda-eula")

    (told,) = (line for line in run(*command, *card).out.splitlines() if "takes about" in line)

    assert re.search(r"Building the images takes about [\d.]+ h on two cores, [\d.]+ GB", told)
    assert "build --dry-run" in told


def test_images_that_the_docker_command_lists_need_no_build(tmp_path: Path) -> None:
    first, *others = images = plan_for(host("radeon-rx-7900-xtx")).images
    docker = tmp_path / "docker"
    listed = " ".join(image.tag for image in others)
    docker.write_text(f"#!/bin/sh\n[ $1 = image ] && printf '%s\\n' {listed}\n")
    docker.chmod(0o755)

    there = tags_here(images, {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert there is not None
    cost = estimate(None, by_name(images, there))

    assert [one.image for one in cost.images if not one.present] == [first.name]
    assert 0 < cost.minutes < estimate(None, nowhere(images)).minutes


@pytest.mark.parametrize(
    "answer", ["echo Cannot connect to the Docker daemon >&2; exit 1", "kill $$"]
)
def test_an_engine_that_is_away_has_no_images(tmp_path: Path, answer: str) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\n{answer}\n")
    docker.chmod(0o755)
    images = plan_for(host("radeon-rx-7900-xtx")).images
    there = tags_here(images, {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert there == frozenset()
    assert estimate(None, by_name(images, there)) == estimate(None, nowhere(images))


def test_an_engine_that_lists_its_images_slowly_is_not_told_to_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "BOUND_S", 0.3)
    images = plan_for(host("radeon-rx-7900-xtx")).images
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nsleep 30\n")
    docker.chmod(0o755)
    assert tags_here(images, {"PATH": f"{tmp_path}:/usr/bin:/bin"}) is None


@pytest.mark.parametrize(("listing", "said"), [("exit 0", True), ("exec sleep 30", False)])
def test_plan_tells_of_a_build_only_where_the_engine_lists_its_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listing: str, said: bool
) -> None:
    settle(tmp_path, monkeypatch)
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\n[ $1 = image ] && {listing}\necho '{{}}'\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    told = run("plan", "--engine", "docker")

    assert "in Docker" in told.out
    assert ("Building the images takes" in told.out) is said


def test_a_plan_without_images_says_nothing_of_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(tmp_path, monkeypatch)
    assert "Building" not in run("plan", "--host-facts", str(NO_GPU)).out
