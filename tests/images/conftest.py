"""The servers' images on a real engine: Debian's real ROCm, and fakes of ZLUDA and the servers.

Those take hours and NVIDIA's toolkit. What is shown here counts as tested with a fake.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import Struct

from tests.docker_engine import build, debian_image, standin_contexts
from tests.images.fake_hip_server import make_fake_hip_server
from tests.images.fake_server import make_fake_selftest, make_fake_server
from tests.images.fake_zluda import make_fake_zluda, make_library
from tests.images.stand_in_stack import with_program
from tests.unit.planning import card, host, machine, plan_for
from zluda_stack.render.project import render_project, write_project

VARIANT = "debian"
TAG = "zluda-stack-test/inference:gfx1100"
NATIVE_TAG = "zluda-stack-test/native:gfx90a"
_DEVICE = """
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
"""


class Parts(Struct, frozen=True, kw_only=True):
    """What the image is put together from: folders in the place of three build stages."""

    zluda: Path
    server: Path
    selftest: Path


class InferenceBuild(Struct, frozen=True):
    """A rendered project whose inference image can be built from parts."""

    project: Path
    standin: str

    def __call__(self, parts: Parts, *, target: str = "inference", tag: str = TAG) -> str:
        """Build the stage `target` for gfx1100; AssertionError with the log."""
        contexts = standin_contexts(self.standin, VARIANT) | {
            "zluda-path": str(parts.zluda),
            "llama-cuda": str(parts.server),
            "selftest-build": str(parts.selftest),
        }
        return build(
            self.project / "images/inference/Dockerfile",
            target=target,
            tag=tag,
            contexts=contexts,
            arguments={"GFX_TARGET": "gfx1100"},
            context=self.project,
        )


@pytest.fixture(scope="session")
def fake_parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """The fakes, with nothing for a gate to find."""
    zluda = make_fake_zluda(tmp_path_factory.mktemp("fake-zluda"))
    return Parts(
        zluda=zluda,
        server=make_fake_server(tmp_path_factory.mktemp("fake-server"), zluda),
        selftest=make_fake_selftest(tmp_path_factory.mktemp("fake-selftest"), zluda),
    )


@pytest.fixture(scope="session")
def inference_build(
    engine: None,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> InferenceBuild:
    """The project as it is rendered for a Radeon card on Debian's ROCm."""
    standin = debian_image("sid", tmp_path_factory.mktemp("debootstrap"))
    plan = plan_for(host("radeon-rx-7900-xtx"), variant=VARIANT, zluda="path", zluda_path="/given")
    project = tmp_path_factory.mktemp("project")
    write_project(render_project(plan), project)
    return InferenceBuild(project, standin)


@pytest.fixture(scope="session")
def inference_image(inference_build: InferenceBuild, fake_parts: Parts) -> str:
    """The inference image for gfx1100 with the fakes in it, which has passed its gates."""
    return inference_build(fake_parts)


class NativeBuild(Struct, frozen=True):
    """A rendered project whose native image can be built around a fake of its server."""

    project: Path
    standin: str

    def __call__(self, server: Path, *, target: str = "native", tag: str = NATIVE_TAG) -> str:
        """Build the stage `target` for gfx90a, `server` in the HIP build's place.

        AssertionError with the log.
        """
        return build(
            self.project / "images/native/Dockerfile",
            target=target,
            tag=tag,
            contexts=standin_contexts(self.standin, VARIANT) | {"llama-hip": str(server)},
            arguments={"GFX_TARGET": "gfx90a"},
            context=self.project,
        )


@pytest.fixture(scope="session")
def native_build(
    engine: None,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> NativeBuild:
    """The project as it is rendered for an Instinct card on Debian's ROCm."""
    standin = debian_image("sid", tmp_path_factory.mktemp("debootstrap"))
    instinct = machine(card("gfx90a", gib=64, name="Instinct MI210"))
    project = tmp_path_factory.mktemp("native-project")
    write_project(render_project(plan_for(instinct, profile="native", variant=VARIANT)), project)
    return NativeBuild(project, standin)


@pytest.fixture(scope="session")
def native_image(native_build: NativeBuild, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The native image for gfx90a with the fake server in it, which has passed its gates."""
    return native_build(make_fake_hip_server(tmp_path_factory.mktemp("fake-hip-server")))


@pytest.fixture(scope="session")
def native_contexts(
    native_build: NativeBuild, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What a stack of the native profile is built in, around a fake server that answers."""
    server = make_fake_hip_server(tmp_path_factory.mktemp("fake-hip-server"))
    root = native_build(server, target="native-root", tag=f"{NATIVE_TAG}-root")
    made = with_program(root, tmp_path_factory.mktemp("native-program"), {})
    contexts = standin_contexts(native_build.standin, VARIANT)
    return contexts | {"llama-hip": str(server), "native-root": f"docker-image://{made}"}


@pytest.fixture(scope="session")
def inference_contexts(
    inference_build: InferenceBuild,
    fake_parts: Parts,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    """The same for the translated profile, with a fake driver that says there is a device."""
    folder = tmp_path_factory.mktemp("inference-program")
    root = inference_build(fake_parts, target="inference-root", tag=f"{TAG}-root")
    driver = make_library(folder / "libcuda.so.1", _DEVICE)
    made = with_program(root, folder, {"opt/zluda/libcuda.so": driver})
    return standin_contexts(inference_build.standin, VARIANT) | {
        "zluda-path": str(fake_parts.zluda),
        "llama-cuda": str(fake_parts.server),
        "selftest-build": str(fake_parts.selftest),
        "inference-root": f"docker-image://{made}",
    }


@pytest.fixture(scope="session")
def webui_contexts(
    native_contexts: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The same for the webui profile: in the place of its program the fake server, with a page."""
    folder = tmp_path_factory.mktemp("webui-program")
    start = folder / "start"
    start.write_text('#!/bin/sh\nexec /opt/llama/llama-server --port "$PORT"\n')
    passed = folder / "passed"
    passed.write_text("{}\n")
    root = native_contexts["native-root"].removeprefix("docker-image://")
    files = {"usr/local/bin/serve": start, "gates/fake": passed}
    made = f"docker-image://{with_program(root, folder / 'context', files)}"
    return native_contexts | {"webui-root": made, "webui-gates": made}
