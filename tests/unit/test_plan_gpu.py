"""Which card computes: what --gpu may say, what is preferred, and what is refused with a way on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.unit.planning import AMD, GIB, card, codes, host, machine, plan_for, refusal
from zluda_stack.errors import HostProblem, PlanRefused
from zluda_stack.host.facts import HostFacts, PciDisplay
from zluda_stack.plan.resolve import require_runnable
from zluda_stack.plan.types import Plan

LAPTOP = "laptop-without-gpu-or-docker"
RADEON = "radeon-rx-7900-xtx"
IGPU_FIRST = "igpu-gfx1036-and-dgpu-gfx1201"

XTX = card("gfx1100", 0, gib=24, name="AMD Radeon RX 7900 XTX", unique_id="GPU-a20049f7cb1d1a3f")
XT = card("gfx1100", 1, gib=20, name="AMD Radeon RX 7900 XT", unique_id="GPU-0000000000000b0b")
IGPU = card("gfx1035", 2, gib=1)
DESKTOP = machine(XTX, XT, IGPU)


def chosen(facts: HostFacts, **flags: Any) -> list[int | None]:
    """The numbers of the chosen cards."""
    return [gpu.index for gpu in plan_for(facts, **flags).gpus]


def reasons(plan: Plan) -> dict[int | None, str]:
    return {entry.index: entry.reason for entry in plan.skipped}


@pytest.mark.parametrize(
    ("wish", "numbers"),
    [
        ("auto", [0]),
        ("gfx1100", [0]),
        (" GFX1035 ", [2]),
        ("1035", [2]),
        ("0", [0]),
        ("1", [1]),
        ("02", [2]),
        ("0000:04:00.0", [1]),
        ("04:00.0", [1]),
        ("4:0.0", [1]),
        ("GPU-a20049f7cb1d1a3f", [0]),
        ("gpu-A20049F7CB1D1A3F", [0]),
        ("GPU-b0b", [1]),
        ("rx 7900 xtx", [0]),
        ("RX7900XT", [1]),
        ("AMD Radeon RX 7900 XT", [1]),
        ("rx 7900 gre", [0]),
        ("all", [0, 1]),
        ("0,1", [0, 1]),
        ("1, 03:00.0", [1, 0]),
        ("rx 7900 xt,GPU-a20049f7cb1d1a3f", [1, 0]),
    ],
)
def test_a_card_can_be_named_in_every_way(wish: str, numbers: list[int]) -> None:
    assert chosen(DESKTOP, gpu=wish) == numbers


@pytest.mark.parametrize("wish", ["rx 7900 xtx", "RX7900XTX", "Radeon RX 7900 XTX", "1100"])
def test_a_card_whose_driver_tells_no_name_is_found_by_its_product(wish: str) -> None:
    assert chosen(host(RADEON), gpu=wish) == [0]


def test_a_name_that_lists_several_products_is_each_of_them() -> None:
    listing = card("gfx1100", 0, gib=24, name="Radeon RX 7900 XT/7900 XTX/7900M")
    facts = machine(listing, card("gfx1100", 1, gib=48, name="Radeon Pro W7900"))
    assert chosen(facts, gpu="rx 7900 xtx") == [0]
    assert chosen(facts, gpu="Radeon RX 7900 XT/7900 XTX/7900M") == [0]
    assert chosen(facts, gpu="w7900") == [1]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_discrete_card_is_preferred_and_the_integrated_one_listed(
    order: tuple[int, int],
) -> None:
    both = host(IGPU_FIRST)
    integrated = structs.replace(both.gpus[0], gfx_target="gfx1035")
    facts = structs.replace(both, gpus=tuple((integrated, both.gpus[1])[one] for one in order))
    plan = plan_for(facts)
    assert plan.gpu is not None
    assert (plan.gpu.target, plan.gpu.render_node) == ("gfx1201", "/dev/dri/renderD129")
    (skipped,) = plan.skipped
    assert "gfx1035" in skipped.gpu
    assert "integrated" in skipped.reason
    passed = plan.host_environment.values()
    assert "/dev/dri/renderD129" in passed
    assert "/dev/dri/renderD128" not in passed


def test_the_integrated_card_is_taken_when_it_is_asked_for() -> None:
    plan = plan_for(DESKTOP, gpu="gfx1035")
    assert plan.gpu is not None
    assert plan.gpu.render_node == "/dev/dri/renderD130"
    assert [entry.reason for entry in plan.skipped] == ["gfx1035 was asked for"] * 2


def test_what_the_driver_says_of_a_card_counts_more_than_its_target() -> None:
    soldered = card("gfx1035", 0, integrated=False)
    assert chosen(machine(card("gfx1100", 1, gib=8, integrated=True), soldered)) == [1]


def test_most_memory_comes_first_and_of_equals_the_first_in_the_topology() -> None:
    small, large, equal = card("gfx1102", 0, gib=8), card("gfx1100", 1), card("gfx1201", 2)
    plan = plan_for(machine(small, large, equal))
    assert plan.gpu is not None
    assert plan.gpu.index == 1
    assert "more memory" in reasons(plan)[0]
    assert "first" in reasons(plan)[2]


def test_an_apu_counts_with_its_gtt_and_not_with_its_carve_out() -> None:
    strix = card("gfx1151", 0, gib=0, vram_bytes=GIB // 2, gtt_bytes=120 * GIB)
    plan = plan_for(machine(strix))
    assert plan.gpu is not None
    assert plan.gpu.memory_bytes == 120 * GIB
    carved = card("gfx1103", 1, gib=96, gtt_bytes=16 * GIB)
    assert chosen(machine(carved, strix)) == [1]
    assert plan_for(machine(carved)).gpus[0].memory_bytes == 96 * GIB


def test_a_discrete_card_counts_with_its_own_memory_only() -> None:
    plan = plan_for(machine(card("gfx1102", 0, gib=8, gtt_bytes=120 * GIB), card("gfx1100", 1)))
    assert plan.gpu is not None
    assert (plan.gpu.index, plan.gpu.memory_bytes) == (1, 16 * GIB)


def test_every_card_that_is_passed_over_is_listed_with_its_reason() -> None:
    cards = (
        card("gfx1100", 0),
        card("gfx906", 1),
        card("gfx1199", 2),
        card(None, 3),
        card("gfx1100", 4, render_node=None, gib=64),
    )
    vfio = PciDisplay(address="0000:41:00.0", vendor=AMD, device=0x744C, driver="vfio-pci")
    own = PciDisplay(address="0000:03:00.0", vendor=AMD, device=0x744C, driver="amdgpu")
    nvidia = PciDisplay(address="0000:42:00.0", vendor=0x10DE, device=1, driver="nvidia")
    plan = plan_for(machine(*cards, pci_displays=(own, vfio, nvidia)))
    assert plan.gpu is not None
    assert plan.gpu.index == 0
    told = reasons(plan)
    assert set(told) == {1, 2, 3, 4, None}
    assert "wave64" in told[1]
    assert "not in the catalogue" in told[2]
    assert "does not tell its gfx target" in told[3]
    assert "render node" in told[4]
    assert "vfio-pci" in told[None]


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ("gfx803", "Vulkan"),
        ("gfx90a", "native profile"),
        ("gfx906", "native profile"),
        ("gfx906", "wave32"),
        ("rx7900", "Nearest: gfx1100 (RX 7900 XTX"),
        ("gfx110", "Nearest: gfx1100 (RX 7900 XTX"),
        ("gfx9999", "ZLUDA supports"),
        ("gfx9999", "0: AMD Radeon RX 7900 XTX (gfx1100) at 0000:03:00.0"),
        ("3", "no GPU here has the number 3"),
        ("99", "2: gfx1035 at 0000:05:00.0"),
        ("07:00.0", "no GPU here has the address"),
        ("0001:03:00.0", "no GPU here has the address"),
        ("GPU-1", "no GPU here has the id"),
        ("0,gfx1201", "gfx1201 is not here"),
        ("0,rx 7900 xtx", "named before"),
        ("0,0", "Name each card once"),
        ("0,,1", "names nothing"),
        (" ", "names nothing"),
        ("auto,1", "auto stands by itself"),
        ("0,all", "all stands by itself"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_is_there_or_near(
    wish: str, expected: str
) -> None:
    assert expected in refusal(DESKTOP, gpu=wish)


def test_an_address_without_its_domain_is_refused_where_it_means_two_cards() -> None:
    facts = machine(card("gfx1100", 0), card("gfx1100", 1, pci="0001:03:00.0"))
    assert "of several GPUs" in refusal(facts, gpu="03:00.0")
    assert chosen(facts, gpu="0001:03:00.0") == [1]


def test_a_card_that_zluda_cannot_serve_is_refused_with_its_own_way() -> None:
    facts = machine(card("gfx1100", 0), card("gfx906", 1), card(None, 2))
    assert "native profile" in refusal(facts, gpu="1")
    assert "does not tell its gfx target" in refusal(facts, gpu="2")


def test_several_cards_of_one_target_get_a_replica_each() -> None:
    plan = plan_for(DESKTOP, gpu="all")
    servers = [service for service in plan.services if service.build == "inference"]
    assert [server.name for server in servers] == ["inference", "inference-2"]
    assert reasons(plan) == {2: "integrated; the discrete " + _label(plan) + " is preferred"}
    assert plan.headline.startswith("GPU AMD Radeon RX 7900 XTX at 0000:03:00.0 and AMD Radeon")
    assert (
        plan.host_environment["HOST_RENDER_NODE"],
        plan.host_environment["HOST_RENDER_NODE_2"],
    ) == ("/dev/dri/renderD128", "/dev/dri/renderD129")


def _label(plan: Plan) -> str:
    first = plan.gpus[0]
    return f"{first.name} ({first.target}) at {first.pci}"


def test_integrated_graphics_are_among_all_only_where_there_is_nothing_else() -> None:
    assert chosen(machine(card("gfx1035", 0, gib=1)), gpu="all") == [0]


@pytest.mark.parametrize("wish", ["all", "0,1,2", "gfx1100,1,gfx1201"])
def test_cards_of_two_targets_are_refused_and_a_second_stack_named(wish: str) -> None:
    facts = machine(card("gfx1100", 0), card("gfx1201", 1, gib=8), card("gfx1201", 2))
    text = refusal(facts, gpu=wish)
    assert "gfx1100 and gfx1201" in text
    assert "--gpu 0" in text
    assert "--name second --gpu 1,2" in text


def test_asking_for_all_where_there_is_none_never_becomes_the_cpu() -> None:
    assert "no AMD GPU" in refusal(LAPTOP, gpu="all")
    assert "gfx90c" in refusal("vega-apu-gfx90c", gpu="all")


@pytest.mark.parametrize("wish", ["gfx1100", "GFX1100", " gfx1100 ", "all", "0"])
def test_a_gpu_with_the_embedded_engine_is_refused(wish: str) -> None:
    assert "embedded engine runs on the CPU" in refusal(RADEON, gpu=wish, engine="embedded")


@pytest.mark.parametrize("flags", [{"gpu": "none"}, {"engine": "embedded"}])
def test_a_card_that_nobody_wants_is_listed_all_the_same(flags: dict[str, str]) -> None:
    plan = plan_for(host(RADEON), **flags)
    assert plan.gpus == ()
    assert "asked for" in reasons(plan)[0]


def test_kfd_without_dri_is_an_error_and_not_a_cpu_run() -> None:
    for wish in ("auto", "all", "gfx1100", "0"):
        assert "/dev/dri is not" in refusal("kfd-without-dri", gpu=wish)
    hidden = structs.replace(host("kfd-without-dri"), gpus=())
    with pytest.raises(PlanRefused, match="/dev/dri is not"):
        plan_for(hidden)


def test_an_amd_card_without_kfd_is_an_error_and_not_a_cpu_run() -> None:
    assert "/dev/kfd is not" in refusal("amd-card-without-kfd")


def test_an_old_card_of_the_driver_radeon_leads_to_the_cpu_and_is_named_in_the_first_line() -> None:
    plan = plan_for(host("radeon-hd-7850"))
    assert plan.engine == "embedded"
    assert "Radeon HD 7850" in plan.headline
    assert "its kernel driver is radeon" in plan.headline
    assert "no GPU that can be used" in refusal("radeon-hd-7850", gpu="all")


def test_an_old_card_does_not_hide_that_a_newer_one_beside_it_lacks_kfd() -> None:
    old, newer = host("radeon-hd-7850"), host("amd-card-without-kfd")
    (node,) = newer.render_nodes
    both = structs.replace(
        old,
        render_nodes=(*old.render_nodes, structs.replace(node, path="/dev/dri/renderD129")),
        pci_displays=(*old.pci_displays, *newer.pci_displays),
    )
    assert "(/dev/dri/renderD129), but /dev/kfd is not" in refusal(both)


def test_cards_that_a_container_hides_are_an_error_and_not_a_cpu_run() -> None:
    facts = structs.replace(machine(), hidden_nodes=2)
    assert "cgroup" in refusal(facts)
    assert plan_for(facts, gpu="none").engine == "embedded"


def test_a_reachable_card_is_preferred_to_one_without_a_render_node() -> None:
    facts = machine(card("gfx1100", 0, gib=24, render_node=None), card("gfx1100", 1, gib=8))
    assert chosen(facts) == [1]
    assert "render node under /dev/dri is missing" in refusal(facts, gpu="0")


def test_other_vendors_graphics_do_not_stop_a_cpu_run() -> None:
    assert plan_for(host("intel-graphics")).engine == "embedded"


def test_a_card_without_a_driver_is_named_in_the_first_line() -> None:
    display = PciDisplay(address="0000:03:00.0", vendor=AMD, device=0x744C)
    facts = structs.replace(
        host(LAPTOP), pci_displays=(display,), kernel_options=("nomodeset", "quiet")
    )
    plan = plan_for(facts)
    assert "1002:744c" in plan.headline
    assert "nomodeset" in plan.headline


def test_a_wave64_card_leads_to_the_cpu_with_the_reason_in_the_first_line() -> None:
    plan = plan_for(host("vega-apu-gfx90c"))
    assert plan.engine == "embedded"
    assert "gfx90c" in plan.headline
    assert "wave32" in plan.headline


def test_eight_cards_of_one_kind_share_their_reason_in_the_first_line() -> None:
    plan = plan_for(machine(*(card("gfx942", number) for number in range(8))))
    assert plan.headline.count("wave32") == 1
    assert "gfx942 at 0000:03:00.0 and 7 more are not usable" in plan.headline
    assert len(plan.skipped) == 8


def test_wsl2_is_said_as_such_with_its_way_and_its_missing_kfd_is_never_passed() -> None:
    plan = plan_for(host("wsl2"))
    assert "WSL2" in plan.headline
    (said,) = [notice for notice in plan.warnings if notice.code == "wsl"]
    assert "HSA_ENABLE_DXG_DETECTION=1" in said.hint
    assert "unproven" in said.hint
    asked = plan_for(host("wsl2"), gpu="gfx1100")
    assert codes(asked)[:2] == ["wsl", "gpu-not-here"]
    assert "librocdxg" in asked.unmet[0].hint
    assert "HOST_KFD_GID" not in asked.host_environment
    assert "WSL2" in refusal("wsl2", gpu="0")
    with pytest.raises(HostProblem, match="WSL2"):
        require_runnable(asked)


def test_a_target_that_is_not_here_can_be_planned_but_not_run() -> None:
    plan = plan_for(host(LAPTOP), gpu="gfx1100")
    assert (plan.engine, codes(plan)[0]) == ("docker", "gpu-not-here")
    with pytest.raises(HostProblem, match="gfx1100 was asked for"):
        require_runnable(plan)


@pytest.mark.parametrize("wish", ["gfx1103", "11.0", "11.0.0.0", "v11.0.0", "11.0.0x"])
def test_an_override_of_the_wrong_form_is_refused_wherever_it_comes_from(wish: str) -> None:
    assert "The form is 11.0.0" in refusal(RADEON, hsa_override=wish)
    facts = structs.replace(host(RADEON), environment={"HSA_OVERRIDE_GFX_VERSION": wish})
    with pytest.raises(PlanRefused, match="wrong form"):
        plan_for(facts)


def test_an_override_that_is_a_target_is_told_its_right_form() -> None:
    facts = structs.replace(host(LAPTOP), environment={"HSA_OVERRIDE_GFX_VERSION": "gfx1103"})
    with pytest.raises(PlanRefused) as refused:
        plan_for(facts)
    assert "11.0.3" in refused.value.hint
    assert "unset" in refused.value.hint


@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_override_is_left_out(value: str) -> None:
    facts = structs.replace(host(RADEON), environment={"HSA_OVERRIDE_GFX_VERSION": value})
    plan = plan_for(facts)
    assert plan.gpu is not None
    assert plan.gpu.hsa_override is None
    assert "ZLUDA_STACK_HSA_OVERRIDE" not in plan.host_environment


def test_an_override_is_passed_on_with_a_warning() -> None:
    plan = plan_for(host(RADEON), hsa_override="11.0.2")
    assert plan.host_environment["ZLUDA_STACK_HSA_OVERRIDE"] == "11.0.2"
    notice = next(entry for entry in plan.warnings if entry.code == "hsa-override")
    assert "gfx1102" in notice.message
    assert "miscompile" in notice.hint


@pytest.mark.parametrize(
    ("target", "override", "kernels"),
    [
        ("gfx1102", "11.0.0", "gfx1100"),
        ("gfx1102", "11.0.2", None),
        ("gfx1102", "11.00.02", None),
        ("gfx1031", "10.3.0", "gfx1030"),
        ("gfx1031", "11.0.0", "gfx1100"),
        ("gfx1036", "10.3.0", "gfx1030"),
        ("gfx1151", "11.5.0", "gfx1150"),
    ],
)
def test_an_override_decides_whose_kernels_are_used(
    target: str, override: str, kernels: str | None
) -> None:
    given = {"HSA_OVERRIDE_GFX_VERSION": override}
    for plan in (
        plan_for(machine(card(target)), hsa_override=override),
        plan_for(machine(card(target), environment=given)),
        plan_for(host(LAPTOP), gpu=target, hsa_override=override),
    ):
        (gpu,) = plan.gpus
        assert (gpu.target, gpu.kernel_target, gpu.hsa_override) == (target, kernels, override)


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("9.0.0", "ZLUDA does not support gfx900"),
        ("9.4.2", "ZLUDA needs wave32"),
        ("10.3.1", "rocBLAS has no kernels for gfx1031"),
        ("11.5.2", "rocBLAS has no kernels for gfx1152"),
        ("11.0.9", "gfx1109 is not in the catalogue"),
        ("99.99.99", "not in the catalogue"),
    ],
)
def test_an_override_to_what_cannot_be_served_is_refused_wherever_it_comes_from(
    override: str, reason: str
) -> None:
    variable = {"HSA_OVERRIDE_GFX_VERSION": override}
    text = refusal(machine(card("gfx1102"), environment=variable))
    assert f"HSA_OVERRIDE_GFX_VERSION={override} (environment)" in text
    assert reason in text
    assert "leave it out" in text
    assert reason in refusal(RADEON, hsa_override=override)
    assert reason in refusal(LAPTOP, gpu="gfx1100", hsa_override=override)
    bare = refusal(machine(card("gfx1036"), environment=variable))
    assert reason in bare
    assert "10.3.0 for gfx1030" in bare


def test_an_override_that_no_card_can_take_does_not_stop_the_cpu() -> None:
    left_over = {"HSA_OVERRIDE_GFX_VERSION": "9.0.0"}
    plan = plan_for(structs.replace(host("vega-apu-gfx90c"), environment=left_over))
    assert plan.engine == "embedded"
    assert "gfx90c" in plan.headline
    assert plan_for(host(RADEON), gpu="none", hsa_override="9.0.0").gpus == ()


def test_visible_device_variables_are_not_passed_on_and_that_is_said() -> None:
    both = {"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}
    plan = plan_for(structs.replace(host(RADEON), environment=both))
    notice = next(entry for entry in plan.warnings if entry.code == "visible-devices")
    assert "ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES" in notice.message
    assert not set(both) & set(plan.host_environment)
    assert not any(set(both) & set(service.environment) for service in plan.services)


def test_a_target_without_kernels_says_whose_it_borrows_and_how_proven_that_is() -> None:
    plan = plan_for(host(LAPTOP), gpu="gfx1031")
    notice = next(entry for entry in plan.warnings if entry.code == "kernel-fallback")
    assert "gfx1030" in notice.message
    assert "reported" in notice.hint
    assert plan.host_environment["ZLUDA_STACK_HSA_OVERRIDE"] == "10.3.0"


# Targets that nobody reported a way round for, and what a hint offers to try.
BARE = [
    ("gfx1011", "10.1.0 for gfx1010"),
    ("gfx1036", "10.3.0 for gfx1030"),
    ("gfx1152", "11.5.0 for gfx1150"),
    ("gfx1153", "11.5.0 for gfx1150"),
]


@pytest.mark.parametrize(("target", "example"), BARE)
def test_a_target_that_nobodys_kernels_serve_is_passed_over_and_refused_when_asked_for(
    target: str, example: str
) -> None:
    reason = f"rocBLAS has no kernels for {target}, and nobody has reported a way round"
    here = machine(card(target, 0, gib=96), card("gfx1100", 1, gib=8))
    plan = plan_for(here)
    assert [gpu.target for gpu in plan.gpus] == ["gfx1100"]
    assert reasons(plan) == {0: reason}
    for facts, wish in ((here, target), (here, "0"), (here, "0,1"), (host(LAPTOP), target)):
        text = refusal(facts, gpu=wish)
        assert reason in text
        assert f"hsa_override can name the target whose kernels to use, such as {example}" in text
        assert "unproven" in text


def test_a_target_without_kernels_is_not_among_those_that_a_hint_offers() -> None:
    offered = refusal(LAPTOP, gpu="gfx90a").partition("ZLUDA supports ")[2]
    assert "gfx1031" in offered
    assert [target for target, _ in BARE if target in offered] == []
