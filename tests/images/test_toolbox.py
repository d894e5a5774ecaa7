"""The toolbox on a real engine: Debian's real hipcc and hipify-perl, a fake card.

The vector add is compiled for gfx1100 and run nowhere: there is no such card here.
"""

from __future__ import annotations

import os
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from tests.docker_engine import ROOT, build, debian_image, standin_contexts
from tests.images.ended import terminated
from tests.images.on_fake_card import GID, KFD_GID, RENDER_GID, UID
from zluda_stack.catalog.load import load
from zluda_stack.cuda import elf
from zluda_stack.plan.toolbox import for_every_host
from zluda_stack.render.project import write_project
from zluda_stack.render.toolbox import COMPOSE, render_toolbox
from zluda_stack.settings import Settings

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3600)]

VARIANT = "debian"
TAG = "zluda-stack-test/toolbox"
ACCEPTED = "ZLUDA_STACK_ACCEPT_CUDA_EULA"
ADD = """\
#include <cstdio>
#include <cuda_runtime.h>

__global__ void add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

int main() {
    const int n = 256;
    float *numbers = nullptr;
    if (cudaMalloc(&numbers, 3 * n * sizeof(float)) != cudaSuccess) return 1;
    add<<<1, n>>>(numbers, numbers + n, numbers + 2 * n, n);
    std::printf("%s\\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return cudaFree(numbers) != cudaSuccess;
}
"""
WITH_PTX = """\
#include <cuda_runtime.h>

__global__ void lane(int *out) {
    int number;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(number));
    out[threadIdx.x] = number;
}
"""
# What LLVM's AMDGPU usage calls EF_AMDGPU_MACH_AMDGCN_GFX1100, in the low byte of e_flags.
_GFX1100 = 0x41
_FLAGS_AT = 48


class User(Struct, frozen=True):
    """The user of a machine with a fake card, in a project folder of theirs."""

    folder: Path
    nodes: Path
    image: str

    def line(self, *words: str) -> list[str]:
        start = [sys.executable, "-m", "tests.images.on_fake_card", str(self.nodes)]
        return [*start, "toolbox", "--image", self.image, *words]

    def environment(self) -> dict[str, str]:
        """Away from the files and settings of whoever runs the tests."""
        own = {"HOME": str(self.folder.parent), "PYTHONPATH": str(ROOT)}
        others = ("XDG_", "ZLUDA_STACK_")
        return {key: os.environ[key] for key in os.environ if not key.startswith(others)} | own

    def run(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.line(*words),
            cwd=self.folder,
            env=self.environment(),
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toolbox as it is rendered for Debian's packages."""
    folder = tmp_path_factory.mktemp("project")
    settings = Settings(variant=VARIANT, cuda_toolkit="apt")
    write_project(render_toolbox(for_every_host(load(), settings)), folder)
    return folder


def built(
    project: Path, tmp_path_factory: pytest.TempPathFactory, target: str, **arguments: str
) -> str:
    standin = debian_image("sid", tmp_path_factory.mktemp("debootstrap"))
    return build(
        project / f"images/{target}/Dockerfile",
        target=target,
        tag=f"zluda-stack-test/{target}",
        contexts=standin_contexts(standin, VARIANT),
        arguments=arguments,
        context=project,
    )


@pytest.fixture(scope="module")
def image(engine: None, project: Path, tmp_path_factory: pytest.TempPathFactory) -> str:  # noqa: ARG001
    return built(project, tmp_path_factory, "toolbox")


@pytest.fixture
def user(image: str, tmp_path: Path) -> User:
    """Their project with two sources, and device nodes that only odd groups may open."""
    folder, nodes = tmp_path / "home/project", tmp_path / "host"
    for name, gid in {"dev/kfd": KFD_GID, "dev/dri/renderD129": RENDER_GID}.items():
        node = nodes / name
        node.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(node, stat.S_IFCHR, Path("/dev/fuse").stat().st_rdev)
        os.chown(node, 0, gid)
        node.chmod(0o660)
    folder.mkdir(parents=True)
    (folder / "add.cu").write_text(ADD)
    (folder / "lane.cu").write_text(WITH_PTX)
    for path in (folder, *folder.iterdir()):
        os.chown(path, UID, GID)
    return User(folder, nodes, image)


def code_objects(path: Path) -> dict[str, bytes]:
    """What a HIP object file holds for each machine, by its name in clang's offload bundle."""
    section = next(one for one in elf.read(path).sections if one.name == ".hip_fatbin")
    bundle = path.read_bytes()[section.offset :][: section.size]
    magic = b"__CLANG_OFFLOAD_BUNDLE__"
    assert bundle.startswith(magic)
    (count,) = struct.unpack_from("<Q", bundle, len(magic))
    found, at = {}, len(magic) + 8
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", bundle, at)
        name = bundle[at + 24 : at + 24 + length].decode()
        found[name] = bundle[offset : offset + size]
        at += 24 + length
    return found


def test_a_vector_add_is_converted_and_compiled_for_the_card(user: User, tmp_path: Path) -> None:
    converted = user.run("hipify", "add.cu")
    assert converted.returncode == 0, converted.stderr
    assert "hipMalloc" in (user.folder / "add.cu.hip").read_text()
    compiled = user.run("hipcc", "-c", "add.cu.hip", "-o", "add.o")
    assert compiled.returncode == 0, compiled.stderr
    assert ((user.folder / "add.o").stat().st_uid, (user.folder / "add.o").stat().st_gid) == (
        UID,
        GID,
    )
    code = code_objects(user.folder / "add.o")
    (ours,) = [raw for name, raw in code.items() if name.endswith("amdgcn-amd-amdhsa--gfx1100")]
    (tmp_path / "code").write_bytes(ours)
    assert elf.read(tmp_path / "code").machine == "AMDGPU"
    assert struct.unpack_from("<I", ours, _FLAGS_AT)[0] & 0xFF == _GFX1100


def test_inline_ptx_is_reported_and_the_rest_is_converted(user: User) -> None:
    told = user.run("hipify", "lane.cu")
    assert told.returncode == 6, told.stderr
    assert "lane.cu:5: mov.u32: inline PTX" in told.stdout
    written = (user.folder / "lane.cu.hip").read_text()
    assert written.startswith("// NOT CONVERTED")
    assert "hip/hip_runtime.h" in written
    refused = user.run("hipcc", "-c", "lane.cu.hip", "-o", "lane.o")
    assert refused.returncode == 1


def test_the_card_is_there_with_its_groups(user: User) -> None:
    told = user.run("--", "sh", "-c", "id -u; id -G; ls /dev/kfd /dev/dri")
    uid, groups, *nodes = told.stdout.splitlines()
    assert uid == str(UID)
    assert set(groups.split()) == {str(GID), str(KFD_GID), str(RENDER_GID)}
    assert "renderD129" in nodes


def test_the_exit_code_is_the_tools(user: User) -> None:
    assert user.run("--", "sh", "-c", "exit 42").returncode == 42
    assert user.run("hipcc", "nothing.hip").returncode == 1
    assert user.run("shell", "-c", "exit 7").returncode == 7


def test_a_signal_reaches_the_tool(user: User) -> None:
    script = 'trap "exit 7" TERM; echo ready; while :; do sleep 0.1; done'
    line = user.line("--", "sh", "-c", script)
    assert terminated(line, user.folder, user.environment()) == 7


def test_a_tool_that_the_image_lacks_is_said(user: User) -> None:
    told = user.run("rocgdb", "./add")
    assert told.returncode == 127
    assert "no command rocgdb in the toolbox" in told.stderr
    assert "toolbox --list" in told.stderr


def test_the_list_has_versions_and_what_is_missing(user: User) -> None:
    rows = {line.split()[0]: line for line in user.run("--list").stdout.splitlines()}
    assert "(hipcc)" in rows["hipcc"]
    assert "(hipify-perl)" in rows["hipify-perl"]
    for name in ("nvcc", "hipify-clang", "rocgdb"):
        assert "not in this image" in rows[name]


@pytest.fixture
def compose_file(project: Path, image: str) -> Iterator[Path]:
    """The rendered compose file, with the image that the tests built."""
    path = project / COMPOSE
    before = path.read_text()
    path.write_text(before.replace(f"zluda-stack/toolbox:{VARIANT}", image))
    yield path
    path.write_text(before)


def test_compose_alone_runs_a_tool_on_the_current_folder(user: User, compose_file: Path) -> None:
    ids = {"ZLUDA_STACK_UID": str(UID), "ZLUDA_STACK_GID": str(GID), "PWD": str(user.folder)}
    line = ("docker", "compose", "-f", str(compose_file), "run", "--rm", "-T", "toolbox")
    script = "hipify-perl add.cu >by-compose.hip && hipcc -c by-compose.hip --offload-arch=gfx1100"
    told = subprocess.run(
        [*line, "sh", "-c", script],
        cwd=user.folder,
        env=os.environ | ids,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    made = (user.folder / "by-compose.o").stat()
    assert (made.st_uid, made.st_gid) == (UID, GID)


def test_with_the_terms_accepted_nvcc_is_there(
    user: User, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if os.environ.get(ACCEPTED) != "yes":
        pytest.skip(f"NVIDIA's terms are not accepted: {ACCEPTED}=yes says that they are")
    with_cuda = built(project, tmp_path_factory, "toolbox-cuda", ACCEPT_CUDA_EULA="yes")
    told = User(user.folder, user.nodes, with_cuda).run("nvcc", "--ptx", "add.cu")
    assert told.returncode == 0, told.stderr
    assert ".visible .entry" in (user.folder / "add.ptx").read_text()
