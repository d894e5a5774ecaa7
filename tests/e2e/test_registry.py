"""Images pushed to a real registry and pulled from it instead of built (Debian's docker-registry).

The Dockerfiles are small ones in the place of the real; what the images are called, and what is
built, pulled and refused, is decided as for those.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from docker import DockerClient
from msgspec import structs

from tests.docker_engine import docker
from tests.e2e.conftest import free_port
from tests.unit.planning import host, plan_for
from zluda_stack.engines.docker import containers
from zluda_stack.engines.docker.estimate import estimate
from zluda_stack.engines.docker.registry import find, name_in, names_in, push
from zluda_stack.engines.docker.supply import commands, provide, survey
from zluda_stack.errors import EngineFailure, HostProblem
from zluda_stack.plan.types import ImagePlan, Plan
from zluda_stack.progress import Silent
from zluda_stack.render.content_key import content_key
from zluda_stack.render.project import dockerfile

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

_START_SECONDS = 20
_CONFIG = """\
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The registry's program; unpacked from Debian's package where it is not installed."""
    installed = shutil.which("docker-registry")
    if installed:
        return installed
    folder = tmp_path_factory.mktemp("docker-registry")
    for command in (
        ["apt-get", "--quiet", "--quiet", "download", "docker-registry"],
        ["sh", "-c", "dpkg-deb --extract docker-registry_*.deb ."],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"NO REGISTRY: `{' '.join(command)}`: {done.stderr.strip()[-200:]}")
    return str(folder / "usr/bin/docker-registry")


@pytest.fixture(scope="module")
def registry(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running registry as a user names it."""
    port, folder = free_port(), tmp_path_factory.mktemp("registry")
    config = folder / "config.yml"
    config.write_text(_CONFIG.format(folder=folder / "data", port=port))
    with subprocess.Popen([program, "serve", str(config)], stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(f"http://127.0.0.1:{port}/v2/")
            yield f"localhost:{port}/test"
        finally:
            process.terminate()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            requests.get(url, timeout=1).raise_for_status()
        except requests.RequestException:
            assert time.monotonic() < deadline, f"{url} does not answer"
            time.sleep(0.1)
        else:
            return


@pytest.fixture
def client(engine: None) -> Iterator[DockerClient]:  # noqa: ARG001
    with containers.connect() as connected:
        yield connected


@pytest.fixture
def plan(registry: str) -> Iterator[Plan]:
    """A plan for a Radeon card whose images have names of their own."""
    made = plan_for(host("radeon-rx-7900-xtx"), registry=registry, accept_cuda_eula=True)
    images = tuple(
        structs.replace(image, tag=f"zluda-stack-test/registry-{image.name}:1")
        for image in made.images
    )
    yield structs.replace(made, images=images)
    pulled = docker("images", "--quiet", "--filter", f"reference={registry}/*").split()
    left = {*(image.tag for image in images), *pulled}
    subprocess.run(["docker", "rmi", "--force", *left], capture_output=True, check=False)


class Scene:
    """A plan, and the small Dockerfiles that its images are built from."""

    def __init__(self, client: DockerClient, plan: Plan, folder: Path) -> None:
        self.client, self.plan, self.folder = client, plan, folder

    def image(self, name: str) -> ImagePlan:
        return next(image for image in self.plan.images if image.name == name)

    def write(self, name: str, text: str) -> None:
        path = self.folder / dockerfile(self.image(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def provide(self, *names: str) -> list[str]:
        """Provide these images; returns the names of the logs, which say what was done."""
        images = [self.image(name) for name in names]
        supply = survey(self.client, self.plan, images)
        logs = provide(self.client, supply, self.folder, self.folder / "logs", Silent())
        return [path.name for path in logs.values()]

    def push(self, name: str) -> str:
        image = self.image(name)
        there = names_in(self.plan.registry, [image])[name]
        return push(self.client, image, there, self.folder / "logs", Silent())

    def remove(self, name: str) -> None:
        docker("rmi", "--force", docker("images", "--quiet", self.image(name).tag))


@pytest.fixture
def scene(client: DockerClient, plan: Plan, tmp_path: Path) -> Scene:
    made = Scene(client, plan, tmp_path)
    made.write("endpoint", "FROM scratch AS endpoint\nCOPY images/endpoint/Dockerfile /file\n")
    return made


def test_what_was_pushed_is_pulled_by_digest_and_what_is_here_is_left_alone(scene: Scene) -> None:
    assert scene.provide("endpoint") == ["build-endpoint.log"]
    assert scene.provide("endpoint") == []
    built = docker("images", "--quiet", "--no-trunc", scene.image("endpoint").tag)

    remote = scene.push("endpoint")
    assert "@sha256:" in remote
    assert scene.push("endpoint") == remote
    assert docker("images", "--quiet", "--filter", f"reference={scene.plan.registry}/*") == ""

    scene.remove("endpoint")
    supply = survey(scene.client, scene.plan, [scene.image("endpoint")])
    assert commands(supply, scene.folder)[0] == ("docker", "pull", remote)
    cost = estimate(scene.client, supply)
    assert (cost.minutes, cost.images[0].pulled) == (0, True)
    assert scene.provide("endpoint") == ["pull-endpoint.log"]
    assert docker("images", "--quiet", "--no-trunc", scene.image("endpoint").tag) == built
    assert scene.provide("endpoint") == []


def test_an_image_of_other_contents_is_not_there_and_is_built(scene: Scene) -> None:
    scene.provide("endpoint")
    scene.push("endpoint")
    other = structs.replace(scene.image("endpoint"), arguments={"MORE": "1"})
    scene.plan = structs.replace(scene.plan, images=(other,))

    assert scene.provide("endpoint") == ["build-endpoint.log"]


def test_a_tag_that_somebody_moved_is_refused(scene: Scene) -> None:
    other = structs.replace(scene.image("endpoint"), arguments={"MORE": "2"})
    scene.plan = structs.replace(scene.plan, images=(other,))
    stranger = name_in(str(scene.plan.registry), other, str(content_key(other)))
    path = scene.folder / "Stranger"
    path.write_text("FROM scratch\nCOPY Stranger /\n")
    docker("build", "--quiet", "--file", str(path), "--tag", stranger, str(scene.folder))
    docker("push", "--quiet", stranger)
    docker("rmi", "--force", stranger)

    with pytest.raises(EngineFailure, match="built from something else"):
        scene.provide("endpoint")
    assert docker("images", "--quiet", other.tag) == ""


def test_a_stage_that_the_registry_has_is_not_built_for_another_image(scene: Scene) -> None:
    scene.write("zluda", "FROM scratch AS zluda\nCOPY images/zluda/Dockerfile /opt/zluda/made\n")
    scene.provide("zluda")
    scene.push("zluda")
    scene.remove("zluda")
    scene.write(
        "inference",
        "FROM scratch AS zluda\nCOPY hours-of-work /\n"
        "FROM scratch AS inference\nCOPY --from=zluda /opt/zluda /opt/zluda\n",
    )

    supply = survey(scene.client, scene.plan, [scene.image("inference")])
    stages = {stage.stage for stage in estimate(scene.client, supply).images[0].stages}
    assert "llama-cuda-build" in stages
    assert "zluda-build" not in stages
    assert scene.provide("inference") == ["build-inference.log"]


def test_a_registry_that_does_not_answer_is_said_before_anything_is_built(scene: Scene) -> None:
    nowhere = f"localhost:{free_port()}/test"
    scene.plan = structs.replace(scene.plan, registry=nowhere)

    with pytest.raises(HostProblem, match="connection refused"):
        find(scene.client, f"{nowhere}/endpoint:1")
    with pytest.raises(HostProblem) as refused:
        scene.provide("endpoint")
    assert "--registry" in refused.value.hint
