"""Cases that users ran into, where the plan or what is rendered of it has to be right."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from msgspec import structs

from tests.unit.planning import codes, host, plan_for
from zluda_stack import paths
from zluda_stack.errors import HostProblem
from zluda_stack.host.facts import RunningStack
from zluda_stack.plan.resolve import require_runnable
from zluda_stack.plan.types import Plan
from zluda_stack.render.compose import render_compose
from zluda_stack.render.environment import render_env

RADEON = "radeon-rx-7900-xtx"


def services(plan: Plan) -> dict[str, Any]:
    rendered: dict[str, Any] = yaml.safe_load(render_compose(plan))["services"]
    return rendered


def test_c10_docker_desktop_is_told_before_anything_is_built() -> None:
    plan = plan_for(host("docker-desktop-on-linux"), accept_cuda_eula=True)
    with pytest.raises(HostProblem, match="Docker Desktop") as stopped:
        require_runnable(plan)
    assert "docker context use default" in stopped.value.hint


@pytest.mark.parametrize(
    ("case", "kept"),
    [
        ("podman-as-docker", True),
        ("podman-only", False),
        ("rootless-docker", False),
        ("selinux-enforcing", False),
        (RADEON, False),
    ],
)
def test_c11_groups_are_kept_by_podman_and_never_by_docker(case: str, *, kept: bool) -> None:
    groups = services(plan_for(host(case)))["inference"]["group_add"]
    assert (groups == ["keep-groups"]) is kept
    assert ("keep-groups" in groups) is kept


def test_c14_a_taken_port_gives_way_unless_it_was_asked_for() -> None:
    facts = host("port-8080-taken")
    assert plan_for(facts).endpoint.port == 8081
    assert codes(plan_for(facts, port=8080)) == ["port-taken"]
    ours = structs.replace(facts, running=(RunningStack(name="default", port=8080),))
    assert plan_for(ours, port=8080).unmet == ()


@pytest.mark.parametrize("bind", ["127.0.0.1", "192.168.7.4", "::1"])
def test_c15_only_the_published_port_is_bound_and_all_listens_inside(bind: str) -> None:
    plan = plan_for(host(RADEON), engine="docker", gpu="none", bind=bind, port=9090)
    endpoint = services(plan)["endpoint"]
    (port,) = endpoint["ports"]
    values = dict(line.split("=", 1) for line in render_env(plan).splitlines() if "=" in line)
    assert port["host_ip"] == "${ZLUDA_STACK_BIND:-127.0.0.1}"
    assert values["ZLUDA_STACK_BIND"].strip("'\"") == bind
    assert values["ZLUDA_STACK_PORT"].strip("'\"") == "9090"
    assert "--bind=0.0.0.0" in endpoint["command"]
    assert f"--port={port['target']}" in endpoint["command"]
    assert endpoint["healthcheck"]["test"] == ["CMD", "is-healthy", str(port["target"])]
    healthy = (paths.images() / "_scripts" / "is-healthy").read_text()
    assert "/dev/tcp/127.0.0.1/$0" in healthy


@pytest.mark.parametrize("script", ["llama-cpu/serve", "_scripts/serve-on-card"])
def test_c15_a_server_in_a_container_listens_where_the_endpoint_reaches_it(script: str) -> None:
    serve = (paths.images() / script).read_text()
    assert re.search(r"--host 0\.0\.0\.0\b", serve)


@pytest.mark.parametrize(
    ("case", "kernels", "override"),
    [
        ("rx-6700-xt-gfx1031", "gfx1030", "10.3.0"),
        ("radeon-780m-gfx1103", None, None),
        ("radeon-rx-7900-xtx", None, None),
    ],
)
def test_c27_the_catalogue_decides_whose_kernels_are_taken(
    case: str, kernels: str | None, override: str | None
) -> None:
    gpu = plan_for(host(case)).gpu
    assert gpu is not None
    assert (gpu.kernel_target, gpu.hsa_override) == (kernels, override)


@pytest.mark.parametrize(
    ("case", "target"), [("igpu-gfx1036-alone", "gfx1036"), ("radeon-860m-gfx1152", "gfx1152")]
)
def test_c27_where_nobodys_kernels_are_known_to_serve_the_cpu_computes_and_says_why(
    case: str, target: str
) -> None:
    plan = plan_for(host(case))
    reason = f"rocBLAS has no kernels for {target}, and nobody has reported a way round"
    assert (plan.engine, plan.images, plan.unmet) == ("embedded", (), ())
    assert reason in plan.headline
    assert [entry.reason for entry in plan.skipped] == [reason]
