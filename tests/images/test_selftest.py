"""The self-test's image on a real engine, run where there is no CUDA device.

What its programs compute is not seen here; docs/evidence has a run on an NVIDIA GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.docker_engine import build, docker, standin_contexts
from tests.unit.plans import image
from zluda_stack import paths
from zluda_stack.cuda import elf, fatbin
from zluda_stack.cuda.fatbin import CodeKind
from zluda_stack.render.dockerfiles import render_dockerfile

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3600)]

TAG = "zluda-stack-test/selftest"
ACCEPTED = "ZLUDA_STACK_ACCEPT_CUDA_EULA"
SOURCES = paths.images() / "selftest" / "src"
PROGRAMS = sorted(path.stem for path in SOURCES.glob("*.cu"))


@pytest.fixture(scope="module")
def dockerfile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rendered") / "Dockerfile"
    path.write_text(render_dockerfile(image("selftest")))
    return path


@pytest.fixture(scope="module")
def folder(standin: str, dockerfile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the image holds in /opt/selftest."""
    if os.environ.get(ACCEPTED) != "yes":
        pytest.skip(f"NVIDIA's terms are not accepted: {ACCEPTED}=yes says that they are")
    build(
        dockerfile,
        target="selftest",
        tag=TAG,
        contexts=standin_contexts(standin),
        arguments={"ACCEPT_CUDA_EULA": "yes"},
    )
    container = docker("create", TAG, "nothing")
    out = tmp_path_factory.mktemp("selftest")
    docker("cp", "--quiet", f"{container}:/opt/selftest", str(out))
    docker("rm", container)
    return out / "selftest"


def run(folder: Path, base: str, *programs: str) -> tuple[int, list[dict[str, object]]]:
    """The exit code of the self-test in a container, and what it says line by line."""
    mount = ("--volume", f"{folder}:/opt/selftest:ro")
    inside = (base, "/opt/selftest/selftest", *programs)
    done = subprocess.run(
        ["docker", "run", "--rm", "--network=none", "--read-only", "--tmpfs=/tmp", *mount, *inside],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_the_build_stops_with_the_next_step_while_the_terms_are_not_accepted(
    standin: str, dockerfile: Path
) -> None:
    contexts = standin_contexts(standin)
    with pytest.raises(AssertionError) as stopped:
        build(dockerfile, target="cuda-toolkit", tag=TAG, contexts=contexts)
    assert "NVIDIA's terms for the CUDA toolkit are not accepted" in str(stopped.value)
    assert "--build-arg ACCEPT_CUDA_EULA=yes" in str(stopped.value)


def test_every_program_holds_ptx_for_80_and_86_and_no_machine_code(folder: Path) -> None:
    for name in PROGRAMS:
        entries = fatbin.read(folder / name)
        assert {entry.kind for entry in entries} == {CodeKind.PTX}, name
        assert sorted(entry.architecture for entry in entries) == ["sm_80", "sm_86"], name


def test_the_programs_bring_libcudart_and_leave_the_rest_of_cuda_to_zluda(folder: Path) -> None:
    for name in PROGRAMS:
        program = elf.read(folder / name)
        assert program.runpath == "$ORIGIN"
        assert "libcudart.so.13" in program.needed
        assert not any(library.startswith("libcuda.so") for library in program.needed)
    libraries = sorted(path.name for path in folder.glob("*.so*"))
    assert libraries == ["libcudart.so.13"]
    assert (folder / "licences" / "LICENSE-NVIDIA").stat().st_size > 0


def test_without_a_device_each_program_says_so_in_one_line(folder: Path, standin: str) -> None:
    without_cublas = [name for name in PROGRAMS if "gemm" not in name]
    code, told = run(folder, standin, *without_cublas)
    assert code == 2
    assert [each["test"] for each in told] == [*without_cublas, "selftest"]
    for each in told:
        assert each["ok"] is False
        assert str(each["detail"]).startswith("no CUDA device")
        assert each["device"] is None


def test_a_missing_cublas_is_named(folder: Path, standin: str) -> None:
    code, told = run(folder, standin, "sgemm")
    assert code == 1
    assert "libcublas.so.13" in str(told[0]["detail"])
