"""The native image with a fake HIP server, and its services with fake device nodes.

ROCm, its kernels and the engine are real ones (the variant `debian`), and so are the self-test's
HIP programs for gfx90a. What is shown of the server counts as "tested with a fake" only.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker_engine import docker
from tests.images.clone import Clone
from tests.images.conftest import NativeBuild
from tests.images.fake_hip_server import make_fake_hip_server
from tests.unit.fake_host import RX_7900_XTX, FakeHost
from zluda_stack import paths

pytestmark = [pytest.mark.docker, pytest.mark.timeout(7200)]

ODD_GID = 148
GFX90A = {"gfx_target_version": 90010, "wave_front_size": 64, "drm_render_minor": 129}
PROGRAMS = sorted(path.stem for path in (paths.images() / "selftest/src").glob("*.cu"))


@pytest.fixture
def instinct(tmp_path: Path) -> Path:
    """The / of a host with a gfx90a card, whose device nodes only the group 148 may open.

    They are /dev/fuse by another name: a character device that anyone with the right may open.
    """
    made = FakeHost(tmp_path / "host").with_node(1, RX_7900_XTX | GFX90A, vram_bytes=64 << 30)
    number = Path("/dev/fuse").stat().st_rdev
    for name in ("dev/kfd", "dev/dri/renderD129"):
        node = made.root / name
        node.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(node, stat.S_IFCHR, number)
        os.chown(node, 0, ODD_GID)
        node.chmod(0o660)
    return made.root


@pytest.fixture
def clone(native_image: str, instinct: Path, tmp_path: Path) -> Iterator[Clone]:
    """compose/native.yml as host-env.sh prepares it for that host."""
    made = Clone(tmp_path / "clone", "native")
    said = made.host_env(HOST_ROOT=str(instinct), ZLUDA_STACK_PROFILE="native")
    assert "card: gfx90a" in said
    made.change({"inference": {"image": native_image}})
    yield made
    made.compose("down", "--volumes")


def inside(image: str, script: str) -> str:
    """What `script` prints in a container of `image`, without a card."""
    return docker("run", "--rm", "--entrypoint", "bash", image, "-c", script)


def without_a_card(image: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", "run", "--rm", image, *command], capture_output=True, text=True, check=False
    )


def test_the_image_holds_what_each_gate_found(native_image: str) -> None:
    told = inside(
        native_image, "cd /opt/zluda-stack/gates && for f in *; do tr -d '\\n' <$f; echo; done"
    )
    verdicts = {verdict["gate"]: verdict for verdict in map(json.loads, told.splitlines())}
    assert set(verdicts) == {"kernels", "libraries", "size"}
    assert all(verdict["passed"] for verdict in verdicts.values())
    facts = verdicts["kernels"]["facts"]
    assert (facts["rocBLAS"], facts["hipBLASLt"]) == ("gfx90a", "gfx90a")


def test_nothing_of_zluda_of_cuda_or_of_a_compiler_is_in_the_image(native_image: str) -> None:
    found = inside(native_image, "ls -d /opt/*; command -v python3 gate gcc clang hipcc || true")
    assert found.split() == ["/opt/llama", "/opt/selftest", "/opt/zluda-stack"]
    libraries = inside(native_image, "ldconfig -p")
    assert not re.search(r"libcuda|libcudart|libcublas|libnvidia", libraries)


def test_only_the_kernels_of_its_own_target_are_in_the_image(native_image: str) -> None:
    where = "\\( -path '*rocblas*' -o -path '*hipblaslt*' \\)"
    files = inside(native_image, f"find /usr /opt -xdev {where} -name '*gfx[0-9]*' -type f")
    assert files
    assert [name for name in files.splitlines() if "gfx90a" not in name.rpartition("/")[2]] == []


def test_a_target_for_which_rocblas_has_no_kernels_is_refused_as_the_build_does_it(
    native_image: str,
) -> None:
    """In an image that is there: installing ROCm again takes minutes."""
    keep = ("--entrypoint", "keep-kernels", native_image, "/usr/lib/x86_64-linux-gnu", "gfx942")
    told = subprocess.run(
        ["docker", "run", "--rm", "--user", "0", *keep], capture_output=True, text=True, check=False
    )
    assert told.returncode == 1
    assert "rocBLAS of this ROCm has no kernels for gfx942" in told.stderr


@pytest.mark.parametrize(
    ("planted", "reason"),
    [
        ({"library": "libfake.so.1"}, "needs libfake.so.1, which is not found"),
        ({"function": "hipNoSuchThing"}, "hipNoSuchThing"),
    ],
    ids=["a library that is missing", "a function that HIP lacks"],
)
def test_a_backend_that_would_not_load_stops_the_build(
    native_build: NativeBuild, tmp_path: Path, planted: dict[str, str], reason: str
) -> None:
    server = make_fake_hip_server(tmp_path, **planted)
    with pytest.raises(AssertionError) as stopped:
        native_build(server, target="native-gates", tag="zluda-stack-test/none")
    assert reason in str(stopped.value)


def test_the_non_root_user_opens_device_nodes_of_an_odd_group(clone: Clone) -> None:
    script = "id -u; : <>/dev/kfd && : <>/dev/dri/renderD129 && echo opened"
    command = ("--entrypoint", "bash", "inference", "-c", script)
    told = clone.compose("run", "--rm", "--no-deps", *command)
    assert told.stdout.split() == ["10001", "opened"], told.stderr


def test_without_a_device_the_service_ends_at_once_with_the_reason(clone: Clone) -> None:
    told = clone.compose("run", "--rm", "--no-deps", "inference")
    assert told.returncode == 4
    assert "no ROCm device shows up" in told.stderr + told.stdout
    assert "fake server" not in told.stderr + told.stdout


def test_on_a_device_the_server_is_told_to_compute_there(clone: Clone) -> None:
    """The fake lists the device; that a real server computes on one is not shown."""
    environment = {"FAKE_DEVICE": "ROCm0: a fake", "MODEL_FILE": "/etc/hostname"}
    given = (word for item in environment.items() for word in ("--env", "=".join(item)))
    told = clone.compose("run", "--rm", "--no-deps", *given, "inference")
    assert told.returncode == 0, told.stderr
    assert "fake server: " in told.stdout
    assert "--device ROCm0 --n-gpu-layers 999" in told.stdout


def test_the_selftest_ends_with_the_reason_too(clone: Clone, native_image: str) -> None:
    clone.use("native-selftest")
    clone.change({"selftest": {"image": native_image}})
    told = clone.compose("run", "--rm", "selftest")
    assert told.returncode == 4
    assert "no ROCm device shows up" in told.stderr + told.stdout


def test_without_any_node_the_missing_one_is_named(native_image: str) -> None:
    told = without_a_card(native_image)
    assert told.returncode == 4
    assert "/dev/kfd is not in this container" in told.stderr


def test_each_hip_program_says_in_one_line_that_there_is_no_device(native_image: str) -> None:
    told = inside(native_image, "/opt/selftest/selftest; test $? = 2 && echo ended with 2")
    *lines, end = told.splitlines()
    assert end == "ended with 2"
    said = list(map(json.loads, lines))
    assert sorted(each["test"] for each in said[:-1]) == PROGRAMS
    for each in said:
        assert each["detail"].startswith("no ROCm device")
        assert (each["ok"], each["device"]) == (False, None)


def test_the_hip_programs_hold_code_of_the_target_alone(native_image: str) -> None:
    for name in PROGRAMS:
        found = inside(
            native_image,
            f"grep -aoE 'amdgcn-amd-amdhsa--gfx[0-9a-f]+' /opt/selftest/{name} | sort -u || true",
        )
        # `memory` and the products by hipBLAS have no kernel of their own.
        expected = [] if name in {"memory", "sgemm", "half_gemm"} else ["amdgcn-amd-amdhsa--gfx90a"]
        assert found.split() == expected, name
