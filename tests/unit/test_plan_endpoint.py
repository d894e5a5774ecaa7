"""The settings of the endpoint, and what they make of both engines' commands."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.unit.planning import configured, host, plan_for
from zluda_stack.catalog.load import load
from zluda_stack.engines.docker.secrets import with_secret_files, write_secrets
from zluda_stack.engines.docker.state import StackFolder as ContainerFolder
from zluda_stack.engines.embedded import commands
from zluda_stack.engines.embedded.state import StackFolder
from zluda_stack.errors import HostProblem, PlanRefused
from zluda_stack.gateway.options import parse
from zluda_stack.plan.resolve import resolve
from zluda_stack.plan.types import Plan, Service
from zluda_stack.render.project import render_project

LAPTOP = host("laptop-without-gpu-or-docker")
FULL = {
    "tls_cert": "/keep/chain.pem",
    "tls_key": "/keep/key.pem",
    "hostname": "models.example.org",
    "allow_origins": "https://chat.example.org, http://localhost:3000",
    "queue": 7,
    "slots": 2,
    "capture_prompts": True,
}


def endpoint_of(plan: Plan) -> Service:
    return next(service for service in plan.services if service.name == "endpoint")


def refusal(**flags: object) -> str:
    with pytest.raises(PlanRefused) as refused:
        plan_for(LAPTOP, **flags)
    assert refused.value.hint
    return refused.value.message


def test_clients_are_told_the_name_and_own_tools_go_by_the_address() -> None:
    plan = plan_for(LAPTOP, **FULL)
    assert plan.endpoint.url == "https://models.example.org:8080"
    assert plan.endpoint.local_url == "https://127.0.0.1:8080"
    assert plan_for(LAPTOP, hostname="::1").endpoint.url == "http://[::1]:8080"


def test_the_embedded_endpoint_is_started_with_all_settings(tmp_path: Path) -> None:
    plan = plan_for(LAPTOP, **FULL)
    _, _, _, *words = commands.endpoint(StackFolder(tmp_path), plan)
    options = parse(words)
    assert (options.tls_cert, options.tls_key) == (Path("/keep/chain.pem"), Path("/keep/key.pem"))
    assert options.allow_origin == ["https://chat.example.org", "http://localhost:3000"]
    assert (options.queue, options.slots, options.capture) == (7, 2, Path("capture"))


def test_the_container_gets_all_settings_and_its_files_as_secrets() -> None:
    plan = plan_for(LAPTOP, engine="docker", gpu="none", **FULL)
    endpoint = endpoint_of(plan)
    options = parse(list(endpoint.command[3:]))
    mounted = Path("/run/secrets")
    assert (options.tls_cert, options.tls_key) == (mounted / "tls_cert", mounted / "tls_key")
    assert (options.queue, options.slots, options.capture) == (7, 2, Path("/capture"))
    assert {"tls_cert", "tls_key"} <= set(endpoint.secrets)
    assert "capture:/capture" in endpoint.volumes
    assert "capture" in plan.volumes
    assert endpoint.health is not None
    assert endpoint.health.test[-1] == "/run/secrets/tls_cert"


def test_a_rendered_project_names_the_users_files_and_up_a_copy_that_containers_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_text("-----BEGIN CERTIFICATE-----\n")
    key.write_text("-----BEGIN PRIVATE KEY-----\n")
    files = {"tls_cert": str(chain), "tls_key": str(key)}
    plan = plan_for(LAPTOP, engine="docker", gpu="none", **files)
    rendered = render_project(plan)
    assert f"ZLUDA_STACK_TLS_KEY_FILE={key}\n" in rendered["compose/.env"]

    folder = ContainerFolder(tmp_path / "stack")
    environment = with_secret_files(rendered, plan, folder)["compose/.env"]
    assert environment.count("ZLUDA_STACK_TLS_KEY_FILE=") == 1
    assert f"ZLUDA_STACK_TLS_KEY_FILE={folder.secrets / 'tls_key'}\n" in environment
    assert write_secrets(plan, folder)
    assert (folder.secrets / "tls_key").read_text() == key.read_text()
    assert not write_secrets(plan, folder)
    chain.write_text("-----BEGIN CERTIFICATE-----\nrenewed\n")
    assert write_secrets(plan, folder)
    chain.unlink()
    with pytest.raises(HostProblem, match="cannot read"):
        write_secrets(plan, folder)


def test_without_settings_the_service_is_that_of_the_committed_file() -> None:
    endpoint = endpoint_of(plan_for(LAPTOP, engine="docker", gpu="none"))
    assert endpoint.secrets == ("api_key_hashes",)
    assert not endpoint.volumes
    assert not any("tls" in word or "capture" in word for word in endpoint.command)


@pytest.mark.parametrize("half", [{"tls_cert": "/c.pem"}, {"tls_key": "/k.pem"}])
def test_half_of_what_tls_needs_is_refused(half: dict[str, str]) -> None:
    assert "alone makes no HTTPS" in refusal(**half)


@pytest.mark.parametrize(
    "origin", ["chat.example.org", "https://a.org/", "https://a.org/chat", "https://a b", "null"]
)
def test_what_is_no_origin_is_refused(origin: str) -> None:
    assert "is no origin" in refusal(allow_origins=f"https://fine.org,{origin}")


def test_prompts_on_disk_and_an_open_port_without_tls_are_warned_of() -> None:
    def codes(**flags: object) -> set[str]:
        return {notice.code for notice in plan_for(LAPTOP, **flags).warnings}

    everyone = {"bind": "0.0.0.0"}  # noqa: S104
    tls = {"tls_cert": "/c.pem", "tls_key": "/k.pem"}
    assert "capture" in codes(capture_prompts=True)
    assert "exposed" in codes(**everyone)
    assert "exposed" not in codes(**everyone, **tls)
    assert "capture" not in codes()


def test_a_plan_of_an_earlier_version_is_still_read() -> None:
    plan = plan_for(LAPTOP)
    old = msgspec.to_builtins(plan)
    old["endpoint"] = {name: old["endpoint"][name] for name in ("bind", "port", "host")}
    assert msgspec.convert(old, Plan) == plan


def test_the_same_settings_give_the_same_plan() -> None:
    made = [resolve(LAPTOP, configured(**FULL), load()) for _ in range(2)]
    assert made[0] == made[1]
