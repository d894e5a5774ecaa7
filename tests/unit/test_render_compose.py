"""The compose file says what the services say, hardened, and the same on every host."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs

from tests.unit.planning import card, machine, plan_for
from tests.unit.plans import FETCH, SERVER, image, plan
from zluda_stack.catalog.load import load
from zluda_stack.host.facts import CdiSpec
from zluda_stack.plan.selftest import selftest_plan
from zluda_stack.plan.toolbox import for_every_host
from zluda_stack.plan.types import Plan
from zluda_stack.render.compose import render_compose
from zluda_stack.render.environment import render_env
from zluda_stack.settings import Settings


def rendered(*services: Any, **wish: Any) -> Any:
    return yaml.safe_load(render_compose(plan(*services, **wish)))


def test_environment_is_a_mapping_of_strings_without_stray_quotes() -> None:
    environment = rendered(FETCH, SERVER)["services"]["server"]["environment"]
    assert environment == {"VERSION": "10.3.0", "FLAG": "yes", "PORT": "8081"}


def test_gids_stay_strings_and_variables_stay_whole() -> None:
    server = structs.replace(SERVER, group_add=("148", "${HOST_RENDER_GID:?render it again}"))
    services = rendered(FETCH, server)["services"]
    assert services["server"]["group_add"] == ["148", "${HOST_RENDER_GID:?render it again}"]
    assert services["server"]["devices"] == list(SERVER.devices)


def test_a_runtime_is_named_where_a_service_asks_for_one() -> None:
    services = rendered(FETCH, structs.replace(SERVER, runtime="amd"))["services"]
    assert services["server"]["runtime"] == "amd"
    assert "runtime" not in services["fetch"]


def test_every_service_is_hardened() -> None:
    for service in rendered(FETCH, SERVER)["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in service
        assert "ipc" not in service


def test_a_port_is_published_on_the_address_that_was_asked_for() -> None:
    server = structs.replace(SERVER, publish=(("::1", "9000", 8080),))
    assert rendered(FETCH, server)["services"]["server"]["ports"] == [
        {"host_ip": "::1", "published": "9000", "target": 8080}
    ]


def test_a_one_shot_service_is_not_restarted_and_others_are() -> None:
    services = rendered(FETCH, SERVER)["services"]
    assert services["fetch"]["restart"] == "no"
    assert services["server"]["restart"] == "unless-stopped"
    assert services["server"]["depends_on"] == {
        "fetch": {"condition": "service_completed_successfully"}
    }


def test_a_secret_is_a_file_and_never_a_value() -> None:
    document = rendered(FETCH, SERVER)
    assert document["services"]["server"]["secrets"] == ["api_key"]
    assert list(document["secrets"]["api_key"]) == ["file"]


def test_health_and_grace_carry_their_units() -> None:
    server = rendered(FETCH, SERVER)["services"]["server"]
    assert server["healthcheck"] == {
        "test": ["CMD", "true"],
        "interval": "10s",
        "timeout": "5s",
        "start_period": "60s",
        "start_interval": "2s",
        "retries": 3,
    }
    assert server["stop_grace_period"] == "60s"


def test_an_image_of_a_service_is_built_there_and_others_on_demand_only() -> None:
    own, other = image("own"), image("other")
    server = structs.replace(SERVER, image=own.tag, build="own")
    services = rendered(FETCH, server, images=(own, other))["services"]
    build = {"context": "..", "dockerfile": "images/own/Dockerfile", "target": "own"}
    assert services["server"]["build"] == build
    assert services["other"]["profiles"] == ["build"]
    assert "build" not in services["fetch"]


def test_a_containers_log_cannot_fill_the_disk() -> None:
    options = rendered(SERVER)["services"]["server"]["logging"]["options"]
    assert options == {"max-size": "10m", "max-file": "3"}


def test_build_arguments_and_contexts_are_handed_on() -> None:
    own = structs.replace(
        image("own"), compose_arguments={"GFX_TARGET": "${GPU:?}"}, contexts={"zluda-path": "/z"}
    )
    server = structs.replace(SERVER, build="own")
    build = rendered(FETCH, server, images=(own,))["services"]["server"]["build"]
    assert build["args"] == {"GFX_TARGET": "${GPU:?}"}
    assert build["additional_contexts"] == {"zluda-path": "/z"}


def test_two_stacks_have_two_project_names() -> None:
    assert rendered(FETCH)["name"] == "zluda-stack"
    assert rendered(FETCH, name="second")["name"] == "zluda-stack-second"


def test_nothing_empty_is_written() -> None:
    document = rendered(FETCH)
    assert "secrets" not in document
    assert set(document["services"]["fetch"]) == {
        "image",
        "read_only",
        "cap_drop",
        "security_opt",
        "restart",
        "logging",
        "stop_grace_period",
    }


def test_the_hosts_values_are_not_in_the_compose_file() -> None:
    host = {"HOST_KFD_GID": "148"}
    assert render_compose(plan(SERVER, host=host)) == render_compose(plan(SERVER))


def for_cards(passthrough: str = "auto", **engine: Any) -> Plan:
    """A stack on two cards where everything is set up, but for the terms."""
    nodes: dict[str, tuple[str, ...]] = {
        "0": ("/dev/dri/renderD128",),
        "1": ("/dev/dri/renderD129",),
    }
    spec = CdiSpec(path="/etc/cdi/amd.json", kind="amd.com/gpu", nodes=nodes)
    facts = machine(card("gfx1100", 0), card("gfx1100", 1), cdi=(spec,))
    known = {"runtimes": ("amd", "runc"), "cdi_enabled": True} | engine
    facts = structs.replace(facts, docker=structs.replace(facts.docker, **known))
    return plan_for(facts, gpu="all", passthrough=passthrough)


HOST = {"MODEL": "m", "HOST_RENDER_NODE": "/dev/dri/renderD128", "HOST_KFD_GID": "1"}
PLANS: dict[str, Callable[[], Plan]] = {
    "by hand": lambda: plan(FETCH, SERVER, images=(image(),), host=HOST),
    "devices": for_cards,
    "the self-test on each card": lambda: selftest_plan(for_cards()),
    "cdi": lambda: for_cards("cdi"),
    "runtime": lambda: for_cards("runtime"),
    "podman": lambda: for_cards(emulated_by="podman", rootless=True),
    "the toolbox without a card": lambda: for_every_host(load(), Settings()),
    "the toolbox with a card": lambda: structs.replace(
        for_every_host(load(), Settings()), host_environment=for_cards().host_environment
    ),
}


@pytest.mark.parametrize("kind", PLANS)
def test_docker_compose_accepts_it(kind: str, tmp_path: Path) -> None:
    docker = shutil.which("docker")
    command = [docker or "docker", "compose"]
    if (
        docker is None
        or subprocess.run([*command, "version"], capture_output=True, check=False).returncode
    ):
        pytest.skip("docker compose is not installed, so no Compose has read the file here")
    path, made = tmp_path / "compose.yml", PLANS[kind]()
    path.write_text(render_compose(made))
    secrets = "ZLUDA_STACK_API_KEY_FILE=./key\nZLUDA_STACK_API_KEY_HASHES_FILE=./key\n"
    (tmp_path / ".env").write_text(render_env(made) + secrets)
    told = subprocess.run(
        [*command, "-f", str(path), "config"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
