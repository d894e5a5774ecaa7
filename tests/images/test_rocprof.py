"""`bench --rocprof` on a real engine: a stack of the native profile comes up, and its server under
rocprofv3, is asked, ends in order, and what was counted is on this machine.

The card, rocprofv3 and the server are fakes, so nothing is shown of what a real card computes.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from tests.docker_engine import build, docker, standin_contexts
from tests.e2e.conftest import free_port, own_xdg_folders
from tests.images.conftest import NATIVE_TAG, VARIANT, NativeBuild
from tests.images.fake_hip_server import make_fake_hip_server
from tests.unit.command_line import run
from tests.unit.fetched import CONTENT
from tests.unit.planning import card, machine, plan_for
from zluda_stack.cli import bench_targets
from zluda_stack.engines.docker.compose import project_name
from zluda_stack.engines.docker.engine import DockerEngine
from zluda_stack.errors import ExitCode
from zluda_stack.host.facts import LocalModelFacts
from zluda_stack.plan.types import ImagePlan, Plan
from zluda_stack.progress import Silent

pytestmark = [pytest.mark.docker, pytest.mark.timeout(7200)]

HERE = Path(__file__).parent
WITH_PROGRAM = f"{NATIVE_TAG}-program"
KERNEL = "void fake_kernel<64>(char const*, int)"


@pytest.fixture
def with_fakes(native_build: NativeBuild, tmp_path: Path) -> str:
    """What the native image is before its last stage, with fakes of the server and rocprofv3."""
    server = make_fake_hip_server(tmp_path)
    (server / "opt/llama/llama-server").write_bytes((HERE / "fake_hip_program.py").read_bytes())
    tag = native_build(server, target="native-root", tag=f"{WITH_PROGRAM}-root")
    context = tmp_path / "context"
    context.mkdir()
    (context / "rocprofv3").write_bytes((HERE / "fake_rocprofv3.py").read_bytes())
    (context / "Dockerfile").write_text(
        f"FROM {tag} AS made\nCOPY --chmod=0755 rocprofv3 /usr/bin/\n"
    )
    return build(
        context / "Dockerfile", target="made", tag=WITH_PROGRAM, contexts={}, context=context
    )


@pytest.fixture
def plan(
    with_fakes: str,
    native_build: NativeBuild,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Plan]:
    """The native profile on a card with fake nodes, of a variant that has a rocprofv3."""
    own_xdg_folders(monkeypatch, tmp_path)
    name = f"test-{secrets.token_hex(4)}"
    wishes = {"profile": "native", "variant": VARIANT, "name": name, "port": free_port()}
    model = tmp_path / "fake.gguf"
    model.write_bytes(CONTENT)
    known = LocalModelFacts(path=str(model), size=len(CONTENT), architecture="llama")
    mi210 = card("gfx90a", 1, gib=64, name="Instinct MI210")
    host = machine(mi210, gid=148, local_model=known)
    planned = plan_for(host, **wishes, model=str(model), context=1024)
    contexts = standin_contexts(native_build.standin, VARIANT)
    own = {"native": {"native-root": f"docker-image://{with_fakes}"}}

    def here(image: ImagePlan) -> ImagePlan:
        packages = image.variant.packages | {"profiler": ("python3",)}
        return structs.replace(
            image,
            variant=structs.replace(image.variant, packages=packages),
            contexts=contexts | own.get(image.name, {}),
            tag=f"zluda-stack-test/{image.name}:rocprof",
            compose_tag=None,
        )

    made = structs.replace(
        planned,
        images=tuple(map(here, planned.images)),
        services=tuple(
            structs.replace(one, image=f"zluda-stack-test/{one.build}:rocprof")
            for one in planned.services
        ),
        host_environment=planned.host_environment | {"HOST_ROOT": str(_nodes(tmp_path))},
    )
    yield made
    DockerEngine().down(made.name, Silent(), volumes=True)


def _nodes(folder: Path) -> Path:
    """/dev/fuse by the names of a card's nodes, as a character device that may be opened."""
    for name in ("dev/kfd", "dev/dri/renderD129"):
        node = folder / "host" / name
        node.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(node, stat.S_IFCHR, Path("/dev/fuse").stat().st_rdev)
        os.chown(node, 0, 148)
        node.chmod(0o660)
    return folder / "host"


def test_the_kernels_of_a_server_that_was_brought_up_for_it_are_shown(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_targets, "_plan", lambda *_: plan)
    folder = tmp_path / "counted"
    line = ("bench", "native", "--rocprof", str(folder), "--prompt", "small", "--yes")
    told = run(*line, "--json")
    assert told.code == ExitCode.OK, told.err + told.out
    (target,) = told.json["run"]["targets"]
    assert (target["rocprof"], target["device"]) == (True, "a fake")
    # One request to warm up, and one round of two visits.
    (kernel,) = told.json["kernels"]["native"]
    assert (kernel["name"], kernel["calls"]) == (KERNEL, 3)
    files = sorted(path.relative_to(folder) for path in folder.rglob("*.csv"))
    place = Path("native/1/inference")
    assert files == [place / "server_agent_info.csv", place / "server_kernel_stats.csv"]
    assert {path.owner() for path in folder.rglob("*")} == {tmp_path.owner()}

    again = run("bench", "--kernels", str(folder))
    assert again.code == ExitCode.OK, again.err
    assert KERNEL in again.out
    label = f"label=com.docker.compose.project={project_name(plan.name)}"
    assert docker("ps", "--all", "--quiet", "--filter", label) == ""
    volumes = docker("volume", "ls", "--quiet", "--filter", label)
    assert "rocprof" not in volumes


def test_a_profiler_that_wrote_nothing_is_said_after_what_was_measured(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mute = {"ROCPROF_SIGNAL_HANDLERS": "1"}
    services = (structs.replace(one, environment=one.environment | mute) for one in plan.services)
    monkeypatch.setattr(
        bench_targets, "_plan", lambda *_: structs.replace(plan, services=tuple(services))
    )
    line = ("bench", "native", "--rocprof", str(tmp_path / "counted"), "--prompt", "small")
    told = run(*line, "--yes")
    assert told.code == ExitCode.ENGINE
    assert "there is no *_kernel_stats.csv" in told.err
    assert "first token" in told.out
    assert "measured under rocprofv3, which takes time itself" in told.out
