"""compose/cpu.yml in a fresh clone, on a real engine: built, served, looked into, taken down."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
import testinfra

from tests.docker_engine import docker, inspect, standin_contexts
from tests.e2e.conftest import eventually
from tests.images.clone import Clone, standin_builds

pytestmark = [pytest.mark.docker, pytest.mark.timeout(7200)]

IMAGES = {"model": "endpoint", "inference": "llama-cpu", "endpoint": "endpoint"}


@pytest.fixture(scope="module")
def stack(standin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    """The stack as `docker compose -f compose/cpu.yml up` leaves it."""
    clone = Clone(tmp_path_factory.mktemp("clone"), "cpu")
    clone.host_env(ZLUDA_STACK_GPU="none")
    # One CPU variant instead of all, so that the first build takes minutes only.
    clone.change(standin_builds(standin_contexts(standin), IMAGES, CPU_VARIANTS="OFF"))
    up = clone.compose("up", "--detach", "--build", "--quiet-pull")
    try:
        assert up.returncode == 0, up.stderr
        assert eventually(lambda: clone.is_healthy("endpoint")), clone.compose("logs").stdout
        yield clone
    finally:
        clone.compose("down", "--volumes")


@pytest.fixture(params=["inference", "endpoint"])
def container(request: pytest.FixtureRequest, stack: Clone) -> str:
    """The id of each long-running container in turn."""
    return stack.container(request.param)


@pytest.fixture
def host(container: str) -> testinfra.host.Host:
    return testinfra.get_host(f"docker://{container}")


def ask(stack: Clone, key: str) -> httpx.Response:
    body = {"model": "default", "messages": [{"role": "user", "content": "Say hello."}]}
    return httpx.post(
        f"http://127.0.0.1:{stack.port}/v1/chat/completions",
        json=body | {"max_tokens": 16},
        headers={"authorization": f"Bearer {key}"},
        timeout=300,
    )


def test_a_real_model_answers_through_the_endpoint(stack: Clone) -> None:
    told = ask(stack, stack.key())
    assert told.status_code == 200, told.text
    answer = told.json()
    assert answer["choices"][0]["message"]["content"].strip()
    assert answer["usage"]["completion_tokens"] > 0


def test_nobody_is_served_without_the_key(stack: Clone) -> None:
    assert ask(stack, "zs-another").status_code == 401


def test_the_endpoint_is_published_on_this_machine_only(stack: Clone) -> None:
    ports = inspect(stack.container("endpoint"))["NetworkSettings"]
    assert isinstance(ports, dict)
    assert ports["Ports"] == {"8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(stack.port)}]}
    server = inspect(stack.container("inference"))["NetworkSettings"]
    assert isinstance(server, dict)
    assert not any(server["Ports"].values())


def test_the_model_fetcher_has_ended_well(stack: Clone) -> None:
    state = stack.state("model")
    assert (state["Status"], state["ExitCode"]) == ("exited", 0)


def test_the_key_itself_is_nowhere_in_the_containers(stack: Clone, container: str) -> None:
    assert stack.key() not in docker("inspect", container)
    found = docker(
        "exec", container, "sh", "-c", "cat /proc/1/environ /proc/1/cmdline | tr '\\0' ' '"
    )
    assert "MODEL" in found or "gateway" in found
    assert stack.key() not in found


def test_the_process_has_no_rights_beyond_its_own_user(host: testinfra.host.Host) -> None:
    status = dict(
        line.split(":\t", 1) for line in host.file("/proc/1/status").content_string.splitlines()
    )
    assert status["Uid"].split() == ["10001"] * 4
    assert set(status["CapEff"] + status["CapBnd"] + status["CapPrm"]) == {"0"}
    assert status["NoNewPrivs"] == "1"


def test_nothing_but_tmp_can_be_written(host: testinfra.host.Host) -> None:
    for folder in ("/", "/opt", "/etc", "/usr/local/bin", "/models"):
        assert host.run(f"touch {folder}/written").failed, folder
    assert host.run("touch /tmp/written").succeeded


def test_no_compiler_and_no_downloader_came_along(host: testinfra.host.Host) -> None:
    for program in ("gcc", "cc", "g++", "cmake", "ninja", "git", "curl", "wget"):
        assert not host.exists(program), program


def test_every_library_of_the_server_is_found(stack: Clone) -> None:
    host = testinfra.get_host(f"docker://{stack.container('inference')}")
    libraries = host.run("ldd /opt/llama/llama-server /opt/llama/*.so")
    assert "libllama" in libraries.stdout
    assert "not found" not in libraries.stdout
    assert host.file("/opt/llama/licences/LICENSE").contains("MIT License")


def test_the_server_is_named_in_its_image(stack: Clone) -> None:
    config = inspect(stack.container("inference"))["Config"]
    assert isinstance(config, dict)
    assert config["Labels"]["org.opencontainers.image.licenses"] == "MIT"
    assert config["User"] == "10001:10001"


def test_down_leaves_nothing(stack: Clone) -> None:
    down = stack.compose("down", "--volumes")
    assert down.returncode == 0, down.stderr
    assert stack.left_behind() == []
