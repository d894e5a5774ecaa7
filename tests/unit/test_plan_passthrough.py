"""How the chosen cards enter their containers, and what is said where they cannot."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from msgspec import structs

from tests.unit.planning import AMD, card, codes, host, machine, plan_for
from zluda_stack.errors import HostProblem
from zluda_stack.host.facts import (
    CdiSpec,
    DockerFacts,
    HostFacts,
    LocalModelFacts,
    PciDisplay,
    PodmanFacts,
)
from zluda_stack.plan.resolve import require_runnable
from zluda_stack.plan.types import Notice, Plan, Service
from zluda_stack.render.compose import render_compose

LAPTOP = "laptop-without-gpu-or-docker"
TWO = machine(card("gfx1100", 0), card("gfx1100", 1))
SPEC = CdiSpec(
    path="/etc/cdi/amd.json",
    kind="amd.com/gpu",
    devices=("0", "1", "all"),
    nodes={
        "0": ("/dev/kfd", "/dev/dri/card2", "/dev/dri/renderD129"),
        "1": ("/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD128"),
        "all": ("/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD129"),
    },
)
OTHER_SPEC = CdiSpec(path="/etc/cdi/v.json", kind="example.com/gpu", nodes=SPEC.nodes)


def with_docker(facts: HostFacts, **changes: Any) -> HostFacts:
    return structs.replace(facts, docker=structs.replace(facts.docker, **changes))


def servers(plan: Plan) -> list[Service]:
    return [service for service in plan.services if service.build == "inference"]


def only_lack(plan: Plan) -> Notice:
    """What stands in the way besides the terms; it must be the first thing that `up` says."""
    (notice,) = [entry for entry in plan.unmet if entry.code != "terms"]
    with pytest.raises(HostProblem) as stopped:
        require_runnable(plan)
    assert stopped.value.message == notice.message
    return notice


def test_the_container_gets_exactly_the_nodes_of_its_card_and_their_numeric_gids() -> None:
    plan = plan_for(host("kfd-gid-148"))
    assert plan.engine == "docker"
    assert plan.host_environment["HOST_RENDER_NODE"] == "/dev/dri/renderD128"
    assert plan.host_environment["HOST_KFD_GID"] == "148"
    assert plan.host_environment["HOST_RENDER_GID"] == "993"
    (server,) = servers(plan)
    kfd, render = server.devices
    assert kfd.endswith("/dev/kfd:/dev/kfd")
    assert "HOST_RENDER_NODE" in render
    assert [gid.split(":")[0] for gid in server.group_add] == [
        "${HOST_KFD_GID",
        "${HOST_RENDER_GID",
    ]


def test_group_names_never_appear() -> None:
    for flags in ({}, {"gpu": "all"}, {"passthrough": "cdi"}, {"passthrough": "runtime"}):
        plan = plan_for(TWO, **flags)
        groups = [gid for server in servers(plan) for gid in server.group_add]
        assert groups
        assert all(gid.startswith("${HOST_") for gid in groups)
        values = [value for key, value in plan.host_environment.items() if key.endswith("_GID")]
        assert all(value.isdigit() for value in values)


def test_one_gid_of_both_nodes_is_given_once() -> None:
    facts = host("kfd-gid-148")
    same = tuple(structs.replace(node, gid=148) for node in facts.render_nodes)
    plan = plan_for(structs.replace(facts, render_nodes=same))
    assert plan.host_environment["HOST_KFD_GID"] == "148"
    assert "HOST_RENDER_GID" not in plan.host_environment


def test_a_render_node_keeps_its_number_in_the_container() -> None:
    services = plan_for(host("igpu-gfx1036-and-dgpu-gfx1201")).services
    (devices,) = [service.devices for service in services if service.devices]
    outside, inside = devices[1].removeprefix("${HOST_ROOT:-}").split("}:$", 1)
    assert f"${inside}" == outside + "}"


def test_the_services_are_the_same_on_every_host() -> None:
    here, there = plan_for(host("kfd-gid-148")), plan_for(host(LAPTOP), gpu="gfx1030")
    assert here.services == there.services


def test_replicas_share_the_model_and_neither_card_nor_cache() -> None:
    nodes = [
        structs.replace(node, gid=gid)
        for node, gid in zip(TWO.render_nodes, (109, 110), strict=True)
    ]
    plan = plan_for(structs.replace(TWO, render_nodes=tuple(nodes)), gpu="1,0")
    first, second = servers(plan)
    assert (first.name, second.name) == ("inference", "inference-2")
    assert plan.host_environment["HOST_RENDER_NODE"] == "/dev/dri/renderD129"
    assert plan.host_environment["HOST_RENDER_NODE_2"] == "/dev/dri/renderD128"
    assert plan.host_environment["HOST_RENDER_GID"] == "110"
    assert "HOST_RENDER_GID_2" not in plan.host_environment
    assert "HOST_RENDER_NODE_2:" in second.devices[1]
    assert first.volumes == ("models:/models:ro", "zluda-cache:/cache")
    assert second.volumes == ("models:/models:ro", "zluda-cache-2:/cache")
    assert plan.volumes == ("models", "zluda-cache", "zluda-cache-2")
    assert (first.image, first.environment) == (second.image, second.environment)


def test_the_endpoint_knows_and_waits_for_every_replica() -> None:
    endpoint = plan_for(TWO, gpu="all").services[-1]
    upstreams = [word for word in endpoint.command if word.startswith("--upstream=")]
    assert upstreams == ["--upstream=http://inference:8081", "--upstream=http://inference-2:8081"]
    assert endpoint.depends_on == {
        "inference": "service_healthy",
        "inference-2": "service_healthy",
    }


def test_a_file_of_the_users_is_mounted_beside_the_kernel_cache() -> None:
    header = LocalModelFacts(path="/m/coder.gguf", size=10, context_length=4096)
    facts = structs.replace(TWO, local_model=header)
    plan = plan_for(facts, gpu="all", model="/m/coder.gguf")
    mounts = [server.volumes for server in servers(plan)]
    assert mounts == [
        ("/m/coder.gguf:/model.gguf:ro", "zluda-cache:/cache"),
        ("/m/coder.gguf:/model.gguf:ro", "zluda-cache-2:/cache"),
    ]


def test_docker_desktop_is_told_before_anything_is_built() -> None:
    facts = with_docker(TWO, desktop=True, context="desktop-linux")
    notice = only_lack(plan_for(facts))
    assert notice.code == "docker-desktop"
    assert "desktop-linux" in notice.message
    assert "docker context use default" in notice.hint
    assert codes(plan_for(facts, engine="docker", gpu="none")) == []


def test_an_engine_elsewhere_is_told_before_anything_is_built() -> None:
    notice = only_lack(plan_for(with_docker(TWO, remote=True, context="build-server")))
    assert (notice.code, "build-server" in notice.message) == ("docker-remote", True)


def test_rootless_docker_cannot_open_nodes_of_a_group() -> None:
    notice = only_lack(plan_for(with_docker(TWO, rootless=True)))
    assert notice.code == "rootless-docker"
    assert "65534" in notice.message
    assert "chmod" not in notice.hint


def test_rootless_docker_opens_nodes_that_everybody_may_open() -> None:
    everybody = machine(card("gfx1100"), mode=0o666)
    assert codes(plan_for(with_docker(everybody, rootless=True))) == []


def test_a_namespace_that_hides_the_gid_is_told() -> None:
    notice = only_lack(plan_for(machine(card("gfx1100"), gid=65534)))
    assert notice.code == "unmapped-group"


@pytest.mark.parametrize(("mode", "shut"), [(0o600, True), (0o640, True), (0o606, False)])
def test_a_node_that_its_group_may_not_open_is_told(mode: int, *, shut: bool) -> None:
    plan = plan_for(machine(card("gfx1100"), mode=mode))
    if not shut:
        assert codes(plan) == []
        return
    notice = only_lack(plan)
    assert notice.code == "group-shut-out"
    assert "/dev/kfd and /dev/dri/renderD128" in notice.message


@pytest.mark.parametrize(
    ("docker", "podman"),
    [
        ({"emulated_by": "podman", "rootless": True}, None),
        ({"emulated_by": "podman"}, PodmanFacts(version="5.4.2", rootless=True)),
    ],
)
def test_rootless_podman_keeps_the_users_groups(
    docker: dict[str, Any], podman: PodmanFacts | None
) -> None:
    plan = plan_for(structs.replace(with_docker(TWO, **docker), podman=podman), gpu="all")
    assert codes(plan) == []
    assert "podman" in [notice.code for notice in plan.warnings]
    assert [server.group_add for server in servers(plan)] == [("keep-groups",), ("keep-groups",)]
    assert not any(key.endswith("_GID") for key in plan.host_environment)
    rendered = yaml.safe_load(render_compose(plan))
    assert rendered["services"]["inference"]["group_add"] == ["keep-groups"]


@pytest.mark.parametrize(
    "docker",
    [
        {},
        {"rootless": True},
        {"desktop": True},
        {"remote": True},
        {"emulated_by": "podman", "rootless": False},
    ],
)
def test_keep_groups_is_for_rootless_podman_only(docker: dict[str, Any]) -> None:
    podman = PodmanFacts(version="5.4.2", rootless=True)
    plan = plan_for(structs.replace(with_docker(TWO, **docker), podman=podman))
    assert "keep-groups" not in render_compose(plan)


def test_rootless_podman_needs_a_user_who_may_open_the_nodes() -> None:
    closed = tuple(structs.replace(node, accessible=False) for node in TWO.render_nodes)
    facts = with_docker(
        structs.replace(TWO, render_nodes=closed), emulated_by="podman", rootless=True
    )
    notice = only_lack(plan_for(facts))
    assert "/dev/dri/renderD128" in notice.message
    assert "usermod -aG 109" in notice.hint


def test_without_a_wish_the_device_nodes_are_passed_whatever_is_set_up() -> None:
    facts = structs.replace(with_docker(TWO, runtimes=("runc", "amd")), cdi=(SPEC,))
    assert plan_for(facts).services == plan_for(TWO).services


def test_cdi_names_the_device_of_the_chosen_card_and_adds_its_groups() -> None:
    facts = structs.replace(with_docker(TWO, cdi_enabled=True), cdi=(OTHER_SPEC, SPEC))
    plan = plan_for(facts, passthrough="cdi", gpu="all")
    assert codes(plan) == []
    assert plan.host_environment["HOST_CDI_DEVICE"] == "amd.com/gpu=1"
    assert plan.host_environment["HOST_CDI_DEVICE_2"] == "amd.com/gpu=0"
    assert plan.host_environment["HOST_KFD_GID"] == "109"
    first, second = servers(plan)
    assert [device.split(":")[0] for device in first.devices] == ["${HOST_CDI_DEVICE"]
    assert [device.split(":")[0] for device in second.devices] == ["${HOST_CDI_DEVICE_2"]
    assert "/dev/" not in render_compose(plan)


@pytest.mark.parametrize(
    ("docker", "specs", "expected"),
    [
        ({"cdi_enabled": True}, (), "amd-ctk cdi generate"),
        ({"cdi_enabled": True}, (OTHER_SPEC,), "amd-ctk cdi generate"),
        ({"cdi_enabled": False}, (SPEC,), "/etc/docker/daemon.json"),
        ({"emulated_by": "podman", "rootless": True}, (SPEC,), "device nodes"),
    ],
)
def test_cdi_that_is_not_set_up_is_said_with_the_command_that_does(
    docker: dict[str, Any], specs: tuple[CdiSpec, ...], expected: str
) -> None:
    facts = structs.replace(with_docker(TWO, **docker), cdi=specs)
    plan = plan_for(facts, passthrough="cdi")
    notice = only_lack(plan)
    assert notice.code == "passthrough-cdi"
    assert expected in notice.hint
    assert "/dev/dri/renderD128" not in plan.host_environment.values()


def test_a_cdi_device_that_passes_other_cards_too_is_not_taken() -> None:
    wide = structs.replace(SPEC, nodes={"all": SPEC.nodes["all"]})
    facts = structs.replace(with_docker(TWO, cdi_enabled=True), cdi=(wide,))
    assert only_lack(plan_for(facts, passthrough="cdi")).code == "passthrough-cdi"


def test_amds_runtime_is_told_the_cards_number_in_its_own_order() -> None:
    facts = with_docker(TWO, runtimes=("runc", "amd"))
    old = PciDisplay(address="0000:01:00.0", vendor=AMD, device=0x67DF, driver="amdgpu")
    plan = plan_for(structs.replace(facts, pci_displays=(old,)), passthrough="runtime", gpu="0,1")
    assert codes(plan) == []
    assert plan.host_environment["HOST_AMD_DEVICE"] == "1"
    assert plan.host_environment["HOST_AMD_DEVICE_2"] == "2"
    first = yaml.safe_load(render_compose(plan))["services"]["inference"]
    assert first["runtime"] == "amd"
    assert "devices" not in first
    assert first["environment"]["AMD_VISIBLE_DEVICES"].startswith("${HOST_AMD_DEVICE:?")
    numbered = plan_for(structs.replace(facts, cdi=(SPEC,)), passthrough="runtime", gpu="0")
    assert numbered.host_environment["HOST_AMD_DEVICE"] == "1"


@pytest.mark.parametrize(
    ("docker", "expected"),
    [
        (DockerFacts(runtimes=("runc",)), "amd-ctk runtime configure"),
        (DockerFacts(runtimes=("runc", "amd"), emulated_by="podman"), "device nodes"),
    ],
)
def test_a_runtime_that_is_not_there_is_said(docker: DockerFacts, expected: str) -> None:
    facts = with_docker(TWO, runtimes=docker.runtimes, emulated_by=docker.emulated_by)
    notice = only_lack(plan_for(facts, passthrough="runtime"))
    assert notice.code == "passthrough-runtime"
    assert expected in notice.hint


def test_a_plan_for_another_machine_is_not_measured_by_this_ones_engine() -> None:
    facts = with_docker(host(LAPTOP), desktop=True, rootless=True)
    plan = plan_for(facts, gpu="gfx1100", passthrough="cdi")
    assert not {"docker-desktop", "rootless-docker", "passthrough-cdi"} & set(codes(plan))
    assert "HOST_CDI_DEVICE" not in plan.host_environment
    assert "HOST_CDI_DEVICE" in render_compose(plan)


def test_the_way_and_whose_wish_it_was_are_in_the_decisions() -> None:
    def told(**flags: str) -> list[tuple[str, str]]:
        decisions = plan_for(TWO, **flags).decisions
        return [(one.value, one.because) for one in decisions if one.what == "passthrough"]

    assert told() == [("devices", "the default")]
    assert told(passthrough="runtime") == [("runtime", "given (flag --passthrough)")]
    assert told(gpu="none") == []
