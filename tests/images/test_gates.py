"""Each gate stops the build of the inference image when what it is for is planted.

The gates run in BuildKit as a user's build runs them; ZLUDA, the server and its compiler are fakes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec import structs

from tests.docker_engine import docker
from tests.images.conftest import InferenceBuild, Parts
from tests.images.fake_server import CUBLAS, PTX, make_fake_server
from tests.images.fake_zluda import make_fake_zluda
from zluda_stack.render.images import read_image

pytestmark = [pytest.mark.docker, pytest.mark.timeout(7200)]

GATES = "inference-gates"
TAG = "zluda-stack-test/inference:refused"


def refusal(inference_build: InferenceBuild, parts: Parts, target: str = GATES) -> str:
    """What the build says when it stops."""
    with pytest.raises(AssertionError) as stopped:
        inference_build(parts, target=target, tag=TAG)
    return str(stopped.value)


def test_the_image_holds_what_each_gate_found(inference_image: str) -> None:
    told = docker(
        *("run", "--rm", "--entrypoint", "bash", inference_image, "-c"),
        "cd /opt/zluda-stack/gates && for file in *; do tr -d '\\n' <$file; echo; done",
    )
    verdicts = {verdict["gate"]: verdict for verdict in map(json.loads, told.splitlines())}
    # No offline compiler is in the fake ZLUDA, so the opcodes alone were looked at.
    assert set(verdicts) == {"opcodes", "libraries", "kernels", "symbols", "size"}
    assert all(verdict["passed"] for verdict in verdicts.values())
    assert verdicts["kernels"]["facts"]["rocBLAS"] == "gfx1100"
    assert verdicts["symbols"]["checked"] == len(CUBLAS)


def test_no_python_and_no_gate_is_left_in_the_image(inference_image: str) -> None:
    found = docker(
        *("run", "--rm", "--entrypoint", "bash", inference_image, "-c"),
        "ls -d /opt/*; command -v python3 gate gcc || true",
    )
    assert found.split() == ["/opt/llama", "/opt/selftest", "/opt/zluda", "/opt/zluda-stack"]


def test_a_library_that_is_missing(
    inference_build: InferenceBuild, fake_parts: Parts, tmp_path: Path
) -> None:
    zluda = make_fake_zluda(tmp_path)
    (zluda / "libcublas.so.13").unlink()
    said = refusal(inference_build, structs.replace(fake_parts, zluda=zluda))
    assert "needs libcublas.so.13, which is not found" in said


def test_a_function_that_zluda_lacks_and_no_budget_accepts(
    inference_build: InferenceBuild, fake_parts: Parts, tmp_path: Path
) -> None:
    functions = (*CUBLAS, "cublasZher2k_v2")
    server = make_fake_server(tmp_path, fake_parts.zluda, functions=functions)
    said = refusal(inference_build, structs.replace(fake_parts, server=server))
    assert "ZLUDA lacks 1 CUDA function of those imported: cublasZher2k_v2" in said


def test_an_opcode_that_zluda_lacks(
    inference_build: InferenceBuild, fake_parts: Parts, tmp_path: Path
) -> None:
    ptx = PTX.replace("ret;", "tcgen05.fence::before_thread_sync;\n    ret;")
    server = make_fake_server(tmp_path, fake_parts.zluda, ptx=ptx)
    said = refusal(inference_build, structs.replace(fake_parts, server=server), "inference-ptx")
    assert "ZLUDA lacks 1 opcode of those in 2 modules: tcgen05" in said


def test_ptx_that_the_compiler_refuses(
    inference_build: InferenceBuild, fake_parts: Parts, tmp_path: Path
) -> None:
    """More modules than the budget allows: the server's, copies of it, and the self-test's."""
    gates = read_image("inference").gates
    assert gates is not None
    zluda = make_fake_zluda(tmp_path / "zluda")
    (zluda / "zoc").write_text("#!/bin/sh\necho 'error: no such instruction' >&2\nexit 1\n")
    (zluda / "zoc").chmod(0o755)
    parts = structs.replace(fake_parts, zluda=zluda)
    server = tmp_path / "server"
    make_fake_server(server, fake_parts.zluda)
    backend = server / "opt/llama/libggml-cuda.so"
    for number in range(gates.ptx_modules):
        shutil.copy(backend, backend.with_name(f"libmore{number}.so"))
    said = refusal(inference_build, structs.replace(parts, server=server), "inference-ptx")
    every = gates.ptx_modules + 2
    assert f"{every} of {every} modules do not fully compile for gfx1100" in said
    assert f"the budget is {gates.ptx_modules}" in said
    assert "error: no such instruction" in said


def test_a_target_for_which_rocblas_has_no_kernels(inference_image: str) -> None:
    keep = "keep-kernels /usr/lib/x86_64-linux-gnu gfx1036"
    told = subprocess.run(
        [
            *("docker", "run", "--rm", "--user", "0", "--entrypoint", "bash"),
            *(inference_image, "-c", keep),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 1
    assert "rocBLAS of this ROCm has no kernels for gfx1036" in told.stderr
