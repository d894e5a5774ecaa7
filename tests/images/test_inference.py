"""The inference image with a fake ZLUDA, and its service with fake device nodes, on a real engine.

What these show counts as "tested with a fake" only: no AMD card is here. The ROCm libraries and
kernels are real ones, of the variant `debian`.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker_engine import ROOT, build, docker, standin_contexts
from tests.images.clone import Clone
from tests.images.conftest import TAG
from tests.unit.fake_host import RX_7900_XTX, FakeHost

pytestmark = [pytest.mark.docker, pytest.mark.timeout(7200)]

ODD_GID = 148


@pytest.fixture(scope="module")
def endpoint(standin: str) -> str:
    """The endpoint's image, which fetches the model too."""
    return build(
        ROOT / "images/endpoint/Dockerfile",
        target="endpoint",
        tag="zluda-stack-test/endpoint",
        contexts=standin_contexts(standin),
    )


@pytest.fixture
def radeon(tmp_path: Path) -> Path:
    """The / of a host with an RX 7900 XTX, whose device nodes only the group 148 may open.

    They are /dev/fuse by another name: a character device that anyone with the right may open.
    """
    card = RX_7900_XTX | {"drm_render_minor": 129}
    made = FakeHost(tmp_path / "host").with_node(1, card, vram_bytes=24 << 30)
    number = Path("/dev/fuse").stat().st_rdev
    for name in ("dev/kfd", "dev/dri/renderD129"):
        node = made.root / name
        node.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(node, stat.S_IFCHR, number)
        os.chown(node, 0, ODD_GID)
        node.chmod(0o660)
    return made.root


@pytest.fixture
def clone(inference_image: str, radeon: Path, tmp_path: Path) -> Iterator[Clone]:
    """compose/inference.yml as host-env.sh prepares it for that host."""
    made = Clone(tmp_path / "clone", "inference")
    said = made.host_env(HOST_ROOT=str(radeon))
    assert "card: gfx1100" in said
    made.change({"inference": {"image": inference_image}})
    yield made
    made.compose("down", "--volumes")


def run(clone: Clone, *command: str) -> subprocess.CompletedProcess[str]:
    """Run `command` as the service `inference` would run its server."""
    entrypoint = ("--entrypoint", command[0])
    return clone.compose("run", "--rm", "--no-deps", *entrypoint, "inference", *command[1:])


def test_the_non_root_user_opens_device_nodes_of_an_odd_group(clone: Clone) -> None:
    told = run(clone, "bash", "-c", "id -u; : <>/dev/kfd && : <>/dev/dri/renderD129 && echo opened")
    assert told.stdout.split() == ["10001", "opened"], told.stderr


def test_without_a_device_the_service_ends_at_once_with_the_reason(clone: Clone) -> None:
    told = clone.compose("run", "--rm", "--no-deps", "inference")
    assert told.returncode == 4
    assert "CUDA_ERROR_NO_DEVICE" in told.stderr + told.stdout
    assert "no CUDA device shows up through ZLUDA" in told.stderr + told.stdout


def test_the_selftest_ends_with_the_reason_too(clone: Clone) -> None:
    clone.use("selftest")
    clone.change({"selftest": {"image": TAG}})
    told = clone.compose("run", "--rm", "selftest")
    assert told.returncode == 4
    assert "no CUDA device shows up through ZLUDA" in told.stderr + told.stdout


def test_a_program_of_ones_own_runs_by_the_same_entrypoint_only_on_a_device(clone: Clone) -> None:
    told = clone.compose("run", "--rm", "--no-deps", "inference", "true")
    assert told.returncode == 4
    assert "no CUDA device shows up through ZLUDA" in told.stderr + told.stdout


def test_up_ends_with_the_reason_and_not_with_a_server_on_the_cpu(
    clone: Clone, endpoint: str
) -> None:
    clone.change({name: {"image": endpoint} for name in ("model", "endpoint")})
    up = clone.compose("up", "--no-build")
    assert up.returncode != 0
    assert "model-1" in up.stdout
    assert "no CUDA device shows up through ZLUDA" in up.stdout + up.stderr
    assert clone.state("endpoint")["Status"] == "created"


def test_a_node_that_was_passed_without_its_group_is_named_with_its_gid(
    inference_image: str, radeon: Path
) -> None:
    devices = (
        *("--device", f"{radeon}/dev/kfd:/dev/kfd"),
        *("--device", f"{radeon}/dev/dri/renderD129:/dev/dri/renderD129"),
    )
    told = subprocess.run(
        ["docker", "run", "--rm", *devices, inference_image],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 4
    assert "may not open /dev/kfd of gid 148" in told.stderr
    assert "group_add" in told.stderr


def test_without_any_node_the_missing_one_is_named(inference_image: str) -> None:
    told = subprocess.run(
        ["docker", "run", "--rm", inference_image], capture_output=True, text=True, check=False
    )
    assert told.returncode == 4
    assert "/dev/kfd is not in this container" in told.stderr


def test_only_the_kernels_of_its_own_target_are_in_the_image(inference_image: str) -> None:
    where = "\\( -path '*rocblas*' -o -path '*hipblaslt*' \\)"
    find = f"find /usr /opt -xdev {where} -name '*gfx[0-9]*' -type f"
    files = docker("run", "--rm", "--entrypoint", "bash", inference_image, "-c", find).splitlines()
    assert files
    assert [file for file in files if "gfx1100" not in file.rpartition("/")[2]] == []


def test_rocms_libraries_have_the_names_that_zluda_links_and_are_found(
    inference_image: str,
) -> None:
    names = "libamdhip64 librocblas libhipblaslt librocm_smi64"
    loop = f"for name in {names}; do readlink -e /usr/lib/x86_64-linux-gnu/$name.so; done"
    links = docker("run", "--rm", "--entrypoint", "bash", inference_image, "-c", loop).splitlines()
    assert len(links) == len(names.split())
    libraries = docker("run", "--rm", "--entrypoint", "ldd", inference_image, *links)
    assert "not found" not in libraries
