"""The probe reads what the kernel shows, and nothing it cannot read becomes a guess."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.unit.fake_host import CPU, RX_7900_XTX, FakeHost
from zluda_stack.host.docker import read_docker
from zluda_stack.host.kfd import gfx_name, pci_address, read_gpus
from zluda_stack.host.probe import probe


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return FakeHost(tmp_path / "root")


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (110000, "gfx1100"),
        (90010, "gfx90a"),
        (90402, "gfx942"),
        (110501, "gfx1151"),
        (120001, "gfx1201"),
        (100306, "gfx1036"),
        (80003, "gfx803"),
        (90012, "gfx90c"),
    ],
)
def test_the_kernels_target_version_becomes_the_compilers_name(version: int, name: str) -> None:
    assert gfx_name(version) == name


def test_location_id_becomes_a_pci_address() -> None:
    assert pci_address(34304, 0) == "0000:86:00.0"
    assert pci_address(0x030A, 1) == "0001:03:01.2"


def test_a_radeon_card_is_read_from_the_topology(host: FakeHost) -> None:
    host.with_node(0, CPU).with_node(1, RX_7900_XTX, vram_bytes=24 * 2**30)
    host.with_kfd().with_render_node(128, gtt_bytes=32 * 2**30)
    (gpu,) = read_gpus(host.root)
    assert (gpu.kfd_node, gpu.gfx_target, gpu.pci) == (1, "gfx1100", "0000:86:00.0")
    assert gpu.render_node == "/dev/dri/renderD128"
    assert (gpu.vram_bytes, gpu.gtt_bytes) == (24 * 2**30, 32 * 2**30)
    assert gpu.unique_id == f"GPU-{11673270660693242239:016x}"


def test_node_10_comes_after_node_9(host: FakeHost) -> None:
    for number in (10, 2, 9, 1):
        host.with_node(number, RX_7900_XTX)
    assert [gpu.kfd_node for gpu in read_gpus(host.root)] == [1, 2, 9, 10]


def test_an_old_kernel_without_target_version_gives_a_gpu_without_target(host: FakeHost) -> None:
    old = {key: value for key, value in RX_7900_XTX.items() if key != "gfx_target_version"}
    host.with_node(1, old)
    assert [gpu.gfx_target for gpu in read_gpus(host.root)] == [None]


def test_a_render_node_that_does_not_exist_is_not_claimed(host: FakeHost) -> None:
    host.with_node(1, RX_7900_XTX)
    assert [gpu.render_node for gpu in read_gpus(host.root)] == [None]


def test_a_node_of_garbage_does_not_hide_the_others(host: FakeHost) -> None:
    host.with_node(1, {}).with_node(2, RX_7900_XTX)
    garbage = host.root / "sys/class/kfd/kfd/topology/nodes/1/properties"
    garbage.write_bytes(b"\xff\xfe simd_count\nsimd_count many\nsimd_count 1 2 3\n")
    assert [gpu.kfd_node for gpu in read_gpus(host.root)] == [2]


def test_gids_are_those_that_stat_shows(host: FakeHost) -> None:
    host.with_kfd().with_render_node(128)
    if os.geteuid() == 0:
        os.chown(host.root / "dev/kfd", -1, 148)
    facts = probe(None, {"PATH": ""}, host.root)
    assert facts.kfd is not None
    assert facts.kfd.gid == (host.root / "dev/kfd").stat().st_gid
    assert [(node.path, node.vendor) for node in facts.render_nodes] == [
        ("/dev/dri/renderD128", 0x1002)
    ]


def test_only_listening_ports_are_busy(host: FakeHost) -> None:
    host.with_listeners(8080, 9000)
    assert probe(None, {"PATH": ""}, host.root).listening_ports == (8080, 9000)


def test_only_gpu_variables_of_the_environment_are_kept(host: FakeHost) -> None:
    environ = {"PATH": "", "HSA_OVERRIDE_GFX_VERSION": "", "AWS_SECRET_ACCESS_KEY": "hush"}
    assert probe(None, environ, host.root).environment == {"HSA_OVERRIDE_GFX_VERSION": ""}


def test_an_empty_machine_gives_absent_facts_and_no_error(host: FakeHost) -> None:
    facts = probe(None, {"PATH": ""}, host.root)
    assert (facts.kfd, facts.dri_exists, facts.gpus, facts.memory_bytes) == (None, False, (), None)
    assert facts.docker.client_version is None


def _fake_docker(folder: Path, script: str) -> dict[str, str]:
    program = folder / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_docker_desktop_is_told_from_docker_engine(tmp_path: Path) -> None:
    environ = _fake_docker(
        tmp_path,
        'case "$1" in\n'
        'version) echo \'{"Client":{"Version":"28.0","Context":"desktop-linux"},'
        '"Server":{"Version":"27.5","Platform":{"Name":"Docker Desktop 4.38"}}}\';;\n'
        "compose) echo v2.26.1;;\nesac",
    )
    facts = read_docker(environ)
    assert facts.problem is None
    assert (facts.context, facts.operating_system) == ("desktop-linux", "Docker Desktop 4.38")
    assert (facts.engine_version, facts.compose_version) == ("27.5", "2.26.1")


def test_a_stopped_engine_is_reported_in_its_own_words(tmp_path: Path) -> None:
    environ = _fake_docker(
        tmp_path,
        'test "$1" = version || exit 1\n'
        'echo \'{"Client":{"Version":"28.0"},"Server":null}\'\n'
        "echo Cannot connect to the Docker daemon >&2; exit 1",
    )
    facts = read_docker(environ)
    assert facts.client_version == "28.0"
    assert facts.problem == "Cannot connect to the Docker daemon"


def test_a_docker_that_prints_nonsense_is_a_problem_and_no_error(tmp_path: Path) -> None:
    facts = read_docker(_fake_docker(tmp_path, "echo '[1, 2]'"))
    assert facts.client_version is None
    assert facts.problem
