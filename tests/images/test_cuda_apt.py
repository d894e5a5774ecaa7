"""The CUDA toolkit by apt on a real engine: the self-test, built with what Debian packages.

NVIDIA's own archive, which the other variant takes it from, cannot be reached where this was made.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.docker_engine import build, debian_image, docker, standin_contexts
from tests.unit.planning import host, plan_for
from zluda_stack.cuda import elf, fatbin
from zluda_stack.cuda.fatbin import CodeKind
from zluda_stack.plan.selftest import selftest_image
from zluda_stack.render.dockerfiles import render_dockerfile

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3600)]

TAG = "zluda-stack-test/selftest-apt"
ACCEPTED = "ZLUDA_STACK_ACCEPT_CUDA_EULA"
VARIANT = "debian"


@pytest.fixture(scope="module")
def folder(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001
    """What the self-test's image holds in /opt/selftest."""
    if os.environ.get(ACCEPTED) != "yes":
        pytest.skip(f"NVIDIA's terms are not accepted: {ACCEPTED}=yes says that they are")
    plan = plan_for(host("radeon-rx-7900-xtx"), variant=VARIANT, cuda_toolkit="apt")
    out = tmp_path_factory.mktemp("selftest")
    dockerfile = out / "Dockerfile"
    dockerfile.write_text(render_dockerfile(selftest_image(plan)))
    standin = debian_image("sid", tmp_path_factory.mktemp("debootstrap"))
    contexts = standin_contexts(standin, VARIANT)
    arguments = {"ACCEPT_CUDA_EULA": "yes"}
    build(dockerfile, target="selftest", tag=TAG, contexts=contexts, arguments=arguments)
    container = docker("create", TAG, "nothing")
    docker("cp", "--quiet", f"{container}:/opt/selftest", str(out))
    docker("rm", container)
    docker("rmi", TAG)
    return out / "selftest"


def test_the_programs_hold_ptx_alone_for_80_and_86(folder: Path) -> None:
    entries = fatbin.read(folder / "sgemm")
    assert {entry.kind for entry in entries} == {CodeKind.PTX}
    assert sorted(entry.architecture for entry in entries) == ["sm_80", "sm_86"]


def test_they_bring_the_run_time_of_that_toolkit_and_ask_zluda_for_its_cublas(folder: Path) -> None:
    assert elf.read(folder / "vector_add").needed[0] == "libcudart.so.12"
    assert "libcublas.so.12" in elf.read(folder / "sgemm").needed
    assert [path.name for path in folder.glob("*.so*")] == ["libcudart.so.12"]
    assert (folder / "licences" / "LICENSE-NVIDIA").stat().st_size > 0
