"""The real images of a stack without a GPU, on a real Docker Engine, from `up` to `down`.

The base image is a stand-in (see tests/docker_engine.py); everything else is what users get. The
first run builds llama.cpp's server, which takes minutes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from tests.certificates import self_signed
from tests.docker_engine import docker, standin_contexts
from tests.e2e.conftest import eventually, free_port, own_xdg_folders
from tests.unit.planning import configured
from zluda_stack import keys, paths
from zluda_stack.catalog.load import load
from zluda_stack.engines.base import State
from zluda_stack.engines.docker import containers
from zluda_stack.engines.docker.engine import DockerEngine
from zluda_stack.engines.docker.supply import provide, survey
from zluda_stack.host.probe import probe
from zluda_stack.models.store import Store
from zluda_stack.plan.resolve import require_runnable, resolve
from zluda_stack.plan.types import Plan
from zluda_stack.progress import Silent
from zluda_stack.verify import selftest

pytestmark = [pytest.mark.docker, pytest.mark.timeout(7200)]

_NAME = "test-cpu-stack"


def _plan(standin: str, port: int, **more: object) -> Plan:
    """What `zluda-stack up --engine docker --gpu none` plans here, on the stand-in base."""
    wished = configured(engine="docker", gpu="none", name=_NAME, port=port, context=2048, **more)
    plan = resolve(probe(None, os.environ), wished, load())
    # One CPU variant instead of all of them: the stand-in's build is for this machine only.
    images = (
        structs.replace(
            image,
            contexts=standin_contexts(standin),
            arguments={"CPU_VARIANTS": "OFF"} if image.name == "llama-cpu" else {},
        )
        for image in plan.images
    )
    return structs.replace(plan, images=tuple(images))


@pytest.fixture(scope="module")
def plan(standin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plan]:
    """A running stack of the real images, that the tests of this module share in their order."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        own_xdg_folders(monkeypatch, tmp_path_factory.mktemp("cpu"))
        made = _plan(standin, free_port())
        require_runnable(made)
        yield made
        DockerEngine().down(_NAME, Silent(), volumes=True)


def test_up_ends_with_real_answers_in_both_dialects(plan: Plan) -> None:
    status = DockerEngine().up(plan, Silent())

    assert status.healthy
    key = keys.read_key(_NAME)
    assert key is not None
    checks = selftest.run(plan.endpoint, key)
    assert [check.detail for check in checks] == [""] * 4
    assert all(check.text for check in checks)


def test_the_key_itself_is_in_no_container_and_no_rendered_file(plan: Plan) -> None:
    key = keys.read_key(_NAME)
    assert key is not None

    for path in paths.stack(_NAME).rglob("*"):
        if path.is_file() and path != keys.key_file(_NAME):
            assert key.encode() not in path.read_bytes(), path
    for service in plan.services:
        assert key not in docker("inspect", f"zluda-stack-{_NAME}-{service.name}-1")


def test_an_unchanged_build_runs_no_step_again_and_changes_no_image(plan: Plan) -> None:
    folder = paths.stack(_NAME)
    before = [docker("images", "--quiet", image.tag) for image in plan.images]

    with containers.connect() as client:
        supply = survey(client, plan, plan.images)
        logs = provide(client, supply, folder / "context", folder, Silent())

    assert [docker("images", "--quiet", image.tag) for image in plan.images] == before
    assert logs.keys() == {image.name for image in plan.images}
    for log in logs.values():
        done = [line.split(" ", 2) for line in log.read_text().splitlines()]
        ran = {words[0] for words in done if len(words) == 3 and " RUN " in f" {words[2]} "}
        cached = {words[0] for words in done if words[1:2] == ["CACHED"]}
        assert ran <= cached, log.read_text()


def test_a_killed_server_is_noticed_and_up_heals(plan: Plan) -> None:
    engine = DockerEngine()
    docker("kill", f"zluda-stack-{_NAME}-inference-1")

    status = engine.status(_NAME)
    assert status.state is State.CRASHED
    killed = next(one for one in status.services if one.name == "inference")
    assert killed.exit_status == -signal.SIGKILL
    assert killed.log_tail

    assert engine.up(plan, Silent()).healthy


def test_the_same_stack_speaks_https_and_keeps_prompts_when_it_is_told_to(
    plan: Plan, standin: str, tmp_path: Path
) -> None:
    certificate, key = self_signed(tmp_path, "IP:127.0.0.1")
    files = {"tls_cert": str(certificate), "tls_key": str(key)}
    secure = _plan(standin, plan.endpoint.port, capture_prompts=True, **files)

    status = DockerEngine().up(secure, Silent())

    assert status.healthy
    assert status.url == f"https://127.0.0.1:{plan.endpoint.port}"
    assert not DockerEngine().is_up(plan)
    checks = selftest.run(secure.endpoint, keys.ensure_key(_NAME))
    assert [check.detail for check in checks] == [""] * 4
    endpoint = f"zluda-stack-{_NAME}-endpoint-1"
    health = ("inspect", "--format", "{{.State.Health.Status}}", endpoint)
    assert eventually(lambda: docker(*health).strip() == "healthy", 30)  # Compose's own check
    docker("cp", f"{endpoint}:/capture", str(tmp_path / "kept"))
    kept = b"".join(path.read_bytes() for path in (tmp_path / "kept").glob("*.request"))
    assert b"Say hello" in kept


def test_a_model_of_the_users_store_is_given_to_the_stack_without_any_network(
    plan: Plan, standin: str
) -> None:
    engine = DockerEngine()
    engine.down(_NAME, Silent(), volumes=True)
    assert plan.model.catalogued is not None
    Store(paths.model_store()).ensure(plan.model.catalogued, Silent())

    offline = _plan(standin, plan.endpoint.port, offline=True)

    assert engine.up(offline, Silent()).healthy
    fetcher = docker("logs", f"zluda-stack-{_NAME}-model-1")
    assert "is ready" in fetcher
    assert "download" not in fetcher


@pytest.mark.usefixtures("plan")
def test_down_leaves_nothing() -> None:
    engine = DockerEngine()

    assert engine.down(_NAME, Silent(), volumes=True)

    label = f"label=com.docker.compose.project=zluda-stack-{_NAME}"
    for kind in (("container", "ls", "--all"), ("network", "ls"), ("volume", "ls")):
        assert docker(*kind, "--quiet", "--filter", label) == ""
    assert engine.status(_NAME).state is State.STOPPED
