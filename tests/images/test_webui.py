"""compose/webui-cpu.yml on a real engine: text-generation-webui asked through the endpoint.

Nothing of it is in this repository. WEBUI_SOURCE is a folder that holds the tree of the pinned
commit and stands in for the stage that fetches it, or `github`, to fetch it; else all is skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import httpx
import pytest
import testinfra

from tests.docker_engine import docker, inspect, standin_contexts
from tests.e2e.conftest import eventually, free_port
from tests.images.clone import Clone, standin_builds

pytestmark = [pytest.mark.docker, pytest.mark.timeout(7200)]

IMAGES = {"model": "endpoint", "inference": "webui-cpu", "endpoint": "endpoint"}
MESSAGES = [{"role": "user", "content": "Say hello."}]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The build contexts that stand in for the stage with text-generation-webui's tree."""
    given = os.environ.get("WEBUI_SOURCE")
    if given is None:
        pytest.skip("NO TEXT-GENERATION-WEBUI, so nothing of it was run: WEBUI_SOURCE is not set")
    if given == "github":
        return {}
    stage = tmp_path_factory.mktemp("webui-app")
    leave = shutil.ignore_patterns(".git", "__pycache__")
    shutil.copytree(given, stage / "opt/webui/app", ignore=leave)
    return {"webui-app": str(stage)}


@pytest.fixture(scope="module")
def stack(
    standin: str, source: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clone]:
    """The stack as `docker compose -f compose/webui-cpu.yml up` leaves it."""
    clone = Clone(tmp_path_factory.mktemp("clone"), "webui-cpu")
    clone.host_env(ZLUDA_STACK_PROFILE="webui", ZLUDA_STACK_GPU="none")
    clone.setting("ZLUDA_STACK_WEBUI_PORT", str(free_port()))
    clone.setting("ZLUDA_STACK_CONTEXT", "2048")
    contexts = standin_contexts(standin) | source
    # One CPU variant instead of all, so that the first build takes minutes only.
    clone.change(standin_builds(contexts, IMAGES, CPU_VARIANTS="OFF"))
    up = clone.compose("up", "--detach", "--build", "--quiet-pull")
    try:
        assert up.returncode == 0, up.stderr
        assert eventually(lambda: clone.is_healthy("endpoint")), clone.compose("logs").stdout
        yield clone
    finally:
        clone.compose("down", "--volumes")


def page_port(stack: Clone) -> int:
    """Where the engine has published the page; it must be this machine only."""
    ports = inspect(stack.container("inference"))["NetworkSettings"]
    assert isinstance(ports, dict)
    published = {port: places for port, places in ports["Ports"].items() if places}
    assert list(published) == ["7860/tcp"]
    (place,) = published["7860/tcp"]
    assert place["HostIp"] == "127.0.0.1"
    return int(place["HostPort"])


def opens(url: str) -> bool:
    """True when the page of text-generation-webui is at `url`."""
    page = httpx.get(url, timeout=60)
    return page.status_code == 200 and "TextGen" in page.text


def endpoint(stack: Clone) -> httpx.Client:
    """A client with the key, as a user has one."""
    return httpx.Client(
        base_url=f"http://127.0.0.1:{stack.port}",
        headers={"authorization": f"Bearer {stack.key()}"},
        timeout=300,
    )


def test_a_real_model_answers_through_the_endpoint(stack: Clone) -> None:
    told = endpoint(stack).post(
        "/v1/chat/completions", json={"model": "default", "messages": MESSAGES, "max_tokens": 16}
    )
    assert told.status_code == 200, told.text
    answer = told.json()
    assert answer["choices"][0]["message"]["content"].strip()
    assert answer["usage"]["completion_tokens"] > 0


def test_anthropics_dialect_is_translated_for_it(stack: Clone) -> None:
    told = endpoint(stack).post(
        "/v1/messages", json={"model": "claude-x", "messages": MESSAGES, "max_tokens": 16}
    )
    assert told.status_code == 200, told.text
    assert told.json()["content"][0]["text"].strip()
    counted = endpoint(stack).post(
        "/v1/messages/count_tokens", json={"model": "claude-x", "messages": MESSAGES}
    )
    assert counted.status_code == 200, counted.text
    assert counted.json()["input_tokens"] > 2


def test_a_stream_arrives_in_parts(stack: Clone) -> None:
    asked = {"model": "default", "messages": MESSAGES, "max_tokens": 8, "stream": True}
    with endpoint(stack).stream("POST", "/v1/chat/completions", json=asked) as answer:
        events = [line for line in answer.iter_lines() if line.startswith("data: ")]
    assert events[-1] == "data: [DONE]"
    assert len(events) > 3


def test_the_model_has_the_stores_name_and_the_wished_context(stack: Clone) -> None:
    (model,) = endpoint(stack).get("/v1/models").json()["data"]
    assert (model["id"], model["max_model_len"]) == ("smollm2-135m", 2048)


def test_nobody_is_served_without_the_key_and_its_own_api_is_not_passed_on(stack: Clone) -> None:
    asked = {"model": "default", "messages": MESSAGES}
    bare = httpx.post(f"http://127.0.0.1:{stack.port}/v1/chat/completions", json=asked)
    assert bare.status_code == 401
    unloaded = endpoint(stack).post("/v1/internal/model/unload")
    assert unloaded.status_code == 404


def test_the_page_is_there_and_sends_nothing_home(stack: Clone) -> None:
    assert opens(f"http://127.0.0.1:{page_port(stack)}/")
    environment = docker("exec", stack.container("inference"), "env").splitlines()
    assert "GRADIO_ANALYTICS_ENABLED=False" in environment
    assert "HF_HUB_DISABLE_TELEMETRY=1" in environment


def test_a_page_open_to_the_network_needs_a_password(stack: Clone) -> None:
    image = docker("inspect", "--format", "{{.Config.Image}}", stack.container("inference"))
    run = ["docker", "run", "--rm", "--env", "PAGE_BIND=0.0.0.0", image]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 4
    assert "asks for no password" in done.stderr


def test_the_process_has_no_rights_and_writes_its_state_only(stack: Clone) -> None:
    host = testinfra.get_host(f"docker://{stack.container('inference')}")
    lines = host.file("/proc/1/status").content_string.splitlines()
    status = dict(line.split(":\t", 1) for line in lines)
    assert status["Uid"].split() == ["10001"] * 4
    assert set(status["CapEff"] + status["CapBnd"] + status["CapPrm"]) == {"0"}
    for folder in ("/", "/opt/webui/app", "/opt/webui/python", "/models"):
        assert host.run(f"touch {folder}/written").failed, folder
    assert host.run("touch /state/written").succeeded
    assert host.file("/state/characters").is_directory
    for program in ("gcc", "cc", "git", "curl", "wget"):
        assert not host.exists(program), program


def test_the_server_of_gguf_files_is_our_own_and_the_licence_is_told(stack: Clone) -> None:
    container = stack.container("inference")
    host = testinfra.get_host(f"docker://{container}")
    assert "/opt/llama/llama-server" in host.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    assert host.file("/opt/webui/app/LICENSE").contains("AFFERO")
    config = inspect(container)["Config"]
    assert isinstance(config, dict)
    assert config["Labels"]["org.opencontainers.image.licenses"] == "AGPL-3.0"


def test_health_falls_when_the_models_server_is_gone(stack: Clone) -> None:
    container = stack.container("inference")
    host = testinfra.get_host(f"docker://{container}")
    assert host.run("is-healthy 8081").succeeded
    is_it = '[ "$(readlink $p/exe)" = /opt/llama/llama-server ]'
    host.run(f"for p in /proc/[0-9]*; do {is_it} && kill ${{p#/proc/}}; done")
    assert eventually(lambda: host.run("is-healthy 8081").failed)


def test_down_leaves_nothing(stack: Clone) -> None:
    down = stack.compose("down", "--volumes")
    assert down.returncode == 0, down.stderr
    assert stack.left_behind() == []
