"""What `resolve` decides, and what it refuses, for the machines in tests/cases."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.unit.planning import host, plan_for
from zluda_stack.errors import HostProblem, PlanRefused
from zluda_stack.host.facts import LocalModelFacts, RunningStack
from zluda_stack.plan.resolve import require_runnable
from zluda_stack.plan.types import Plan, from_json, to_json

LAPTOP = "laptop-without-gpu-or-docker"
RADEON = "radeon-rx-7900-xtx"


def refusal(case: str, **flags: Any) -> str:
    with pytest.raises(PlanRefused) as refused:
        plan_for(host(case), **flags)
    assert refused.value.hint
    return f"{refused.value.message} | {refused.value.hint}"


def codes(plan: Plan) -> list[str]:
    return [notice.code for notice in plan.unmet]


def test_the_same_inputs_give_the_same_bytes_and_the_bytes_give_the_plan_back() -> None:
    first, second = plan_for(host(RADEON)), plan_for(host(RADEON))
    assert to_json(first) == to_json(second)
    assert from_json(to_json(first)) == first


def test_a_laptop_gets_the_embedded_engine_and_is_told_so() -> None:
    plan = plan_for(host(LAPTOP))
    assert (plan.engine, plan.gpu, plan.unmet) == ("embedded", None, ())
    assert "CPU" in plan.headline
    assert "/dev/kfd" in plan.headline


def test_a_radeon_card_gets_docker_and_exactly_its_own_nodes() -> None:
    plan = plan_for(host("kfd-gid-148"))
    assert plan.engine == "docker"
    assert plan.gpu is not None
    assert plan.gpu.target == "gfx1100"
    assert plan.host_environment["HOST_RENDER_NODE"] == "/dev/dri/renderD128"
    assert plan.host_environment["HOST_KFD_GID"] == "148"
    assert plan.host_environment["HOST_RENDER_GID"] == "993"


def test_one_gid_of_both_nodes_is_given_once() -> None:
    facts = host("kfd-gid-148")
    same = tuple(structs.replace(node, gid=148) for node in facts.render_nodes)
    plan = plan_for(structs.replace(facts, render_nodes=same))
    assert plan.host_environment["HOST_KFD_GID"] == "148"
    assert "HOST_RENDER_GID" not in plan.host_environment


def test_the_discrete_card_is_preferred_and_the_integrated_one_listed() -> None:
    plan = plan_for(host("igpu-gfx1036-and-dgpu-gfx1201"))
    assert plan.gpu is not None
    assert (plan.gpu.target, plan.gpu.render_node) == ("gfx1201", "/dev/dri/renderD129")
    (skipped,) = plan.skipped
    assert "gfx1036" in skipped.gpu
    assert "integrated" in skipped.reason


def test_a_render_node_keeps_its_number_in_the_container() -> None:
    services = plan_for(host("igpu-gfx1036-and-dgpu-gfx1201")).services
    (devices,) = [service.devices for service in services if service.devices]
    outside, inside = devices[1].removeprefix("${HOST_ROOT:-}").split("}:$", 1)
    assert f"${inside}" == outside + "}"


def test_the_integrated_card_is_taken_when_it_is_asked_for() -> None:
    plan = plan_for(host("igpu-gfx1036-and-dgpu-gfx1201"), gpu="gfx1036")
    assert plan.gpu is not None
    assert plan.gpu.render_node == "/dev/dri/renderD128"
    assert [entry.reason for entry in plan.skipped] == ["gfx1036 was asked for"]


@pytest.mark.parametrize("wish", ["gfx1100", "GFX1100", " gfx1100 "])
def test_a_gpu_with_the_embedded_engine_is_refused(wish: str) -> None:
    assert "embedded engine runs on the CPU" in refusal(LAPTOP, gpu=wish, engine="embedded")


def test_a_radeon_without_docker_stops_and_names_both_ways_on() -> None:
    plan = plan_for(host("radeon-without-docker"))
    assert plan.engine == "docker"
    with pytest.raises(HostProblem) as stopped:
        require_runnable(plan)
    assert "Docker" in stopped.value.message
    assert "Install Docker" in stopped.value.hint
    assert "--engine embedded" in stopped.value.hint


def test_a_user_without_access_to_docker_is_told_so_in_dockers_words() -> None:
    with pytest.raises(HostProblem, match="permission denied"):
        require_runnable(plan_for(host("docker-permission-denied")))


def test_a_radeon_owner_can_choose_the_cpu() -> None:
    plan = plan_for(host("radeon-without-docker"), engine="embedded")
    assert (plan.engine, plan.unmet) == ("embedded", ())


def test_kfd_without_dri_is_an_error_and_not_a_cpu_run() -> None:
    assert "/dev/dri is not" in refusal("kfd-without-dri")
    assert "/dev/dri is not" in refusal("kfd-without-dri", gpu="gfx1100")
    hidden = structs.replace(host("kfd-without-dri"), gpus=())
    with pytest.raises(PlanRefused, match="/dev/dri is not"):
        plan_for(hidden)


def test_an_amd_card_without_kfd_is_an_error_and_not_a_cpu_run() -> None:
    assert "/dev/kfd is not" in refusal("amd-card-without-kfd")


def test_other_vendors_graphics_do_not_stop_a_cpu_run() -> None:
    assert plan_for(host("intel-graphics")).engine == "embedded"


def test_a_wave64_card_leads_to_the_cpu_with_the_reason_in_the_first_line() -> None:
    plan = plan_for(host("vega-apu-gfx90c"))
    assert plan.engine == "embedded"
    assert "gfx90c" in plan.headline
    assert "wave32" in plan.headline


def test_wsl2_is_said_as_such_and_its_missing_kfd_is_never_passed() -> None:
    plan = plan_for(host("wsl2"))
    assert "WSL2" in plan.headline
    asked = plan_for(host("wsl2"), gpu="gfx1100")
    assert "WSL2" in asked.unmet[0].message
    assert "HOST_KFD_GID" not in asked.host_environment


def test_a_target_that_is_not_here_can_be_planned_but_not_run() -> None:
    plan = plan_for(host(LAPTOP), gpu="gfx1100")
    assert (plan.engine, codes(plan)[0]) == ("docker", "gpu-not-here")
    with pytest.raises(HostProblem, match="gfx1100 was asked for"):
        require_runnable(plan)


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ("gfx803", "Vulkan"),
        ("gfx90a", "native"),
        ("gfx906", "wave32"),
        ("rx7900", "gfx1100"),
        ("gfx110", "gfx1100"),
        ("gfx9999", "ZLUDA supports"),
    ],
)
def test_an_impossible_target_is_refused_with_the_way_on(wish: str, expected: str) -> None:
    assert expected in refusal(RADEON, gpu=wish)


@pytest.mark.parametrize("wish", ["gfx1103", "11.0", "11.0.0.0", "v11.0.0", "11.0.0x"])
def test_an_override_of_the_wrong_form_is_refused_wherever_it_comes_from(wish: str) -> None:
    assert "The form is 11.0.0" in refusal(RADEON, hsa_override=wish)
    facts = structs.replace(host(RADEON), environment={"HSA_OVERRIDE_GFX_VERSION": wish})
    with pytest.raises(PlanRefused, match="wrong form"):
        plan_for(facts)


@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_override_is_left_out(value: str) -> None:
    facts = structs.replace(host(RADEON), environment={"HSA_OVERRIDE_GFX_VERSION": value})
    plan = plan_for(facts)
    assert plan.gpu is not None
    assert plan.gpu.hsa_override is None
    assert "ZLUDA_STACK_HSA_OVERRIDE" not in plan.host_environment


def test_an_override_is_passed_on_with_a_warning() -> None:
    plan = plan_for(host(RADEON), hsa_override="11.0.0")
    assert plan.host_environment["ZLUDA_STACK_HSA_OVERRIDE"] == "11.0.0"
    assert "hsa-override" in [notice.code for notice in plan.warnings]


def test_visible_device_variables_are_not_passed_on_and_that_is_said() -> None:
    both = {"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}
    plan = plan_for(structs.replace(host(RADEON), environment=both))
    notice = next(entry for entry in plan.warnings if entry.code == "visible-devices")
    assert "ROCR_VISIBLE_DEVICES" in notice.message
    assert not set(both) & set(plan.host_environment)
    assert not any(set(both) & set(service.environment) for service in plan.services)


def test_a_target_without_kernels_says_whose_it_borrows_and_how_proven_that_is() -> None:
    plan = plan_for(host(LAPTOP), gpu="gfx1031")
    notice = next(entry for entry in plan.warnings if entry.code == "kernel-fallback")
    assert "gfx1030" in notice.message
    assert "reported" in notice.hint
    assert plan.host_environment["ZLUDA_STACK_HSA_OVERRIDE"] == "10.3.0"


def test_the_embedded_engine_says_which_package_it_lacks() -> None:
    facts = host(LAPTOP)
    lacking = structs.replace(facts.embedded, server_version=None, missing=("xllamacpp",))
    with pytest.raises(HostProblem, match="xllamacpp"):
        require_runnable(plan_for(structs.replace(facts, embedded=lacking)))


def test_a_taken_default_port_gives_way_and_the_plan_says_why() -> None:
    facts = structs.replace(host(LAPTOP), listening_ports=(8080, 8081))
    plan = plan_for(facts)
    assert plan.endpoint.port == 8082
    reason = next(entry for entry in plan.decisions if entry.what == "port")
    assert "taken" in reason.because


def test_a_taken_port_that_was_asked_for_is_an_error() -> None:
    facts = structs.replace(host(LAPTOP), listening_ports=(9090,))
    with pytest.raises(HostProblem, match="port 9090 is taken"):
        require_runnable(plan_for(facts, port=9090))


def test_a_port_that_this_very_stack_holds_is_fine() -> None:
    running = (RunningStack(name="default", port=9090), RunningStack(name="other", port=8080))
    facts = structs.replace(host(LAPTOP), listening_ports=(8080, 9090), running=running)
    assert plan_for(facts, port=9090).unmet == ()
    assert plan_for(facts).endpoint.port == 9090
    assert plan_for(facts, name="third").endpoint.port == 8081


@pytest.mark.parametrize(
    ("bind", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080"),
        ("localhost", "http://127.0.0.1:8080"),
        ("0.0.0.0", "http://127.0.0.1:8080"),  # noqa: S104
        ("192.168.7.4", "http://192.168.7.4:8080"),
        ("::1", "http://[::1]:8080"),
        ("::", "http://[::1]:8080"),
    ],
)
def test_clients_get_an_address_they_can_reach(bind: str, url: str) -> None:
    plan = plan_for(host(LAPTOP), bind=bind)
    assert plan.endpoint.url == url
    exposed = "exposed" in [notice.code for notice in plan.warnings]
    assert exposed is (bind in ("0.0.0.0", "192.168.7.4", "::"))  # noqa: S104


def test_an_address_that_is_none_is_refused() -> None:
    assert "no IP address" in refusal(LAPTOP, bind="eth0")


def test_claude_code_is_refused_a_model_that_cannot_hold_its_prompt() -> None:
    text = refusal(LAPTOP, client="claude")
    assert "8192" in text.replace(",", "")
    assert "24576" in text.replace(",", "")


def test_plain_up_only_warns_about_claude_codes_prompt() -> None:
    plan = plan_for(host(LAPTOP))
    assert plan.unmet == ()
    assert any("Claude Code" in notice.message for notice in plan.warnings)


def test_an_unknown_model_names_the_nearest() -> None:
    assert "smollm2-135m" in refusal(LAPTOP, model="smollm2-135")


def test_a_context_beyond_what_the_model_was_trained_for_is_refused() -> None:
    assert "8192" in refusal(LAPTOP, context=16384)
    assert plan_for(host(LAPTOP), context=2048).model.context == 2048


def test_a_gguf_file_is_served_under_its_own_name_and_context() -> None:
    header = LocalModelFacts(path="/m/My Coder.gguf", size=10, context_length=131072)
    facts = structs.replace(host(LAPTOP), local_model=header)
    model = plan_for(facts, model="/m/My Coder.gguf").model
    assert (model.name, model.path) == ("my-coder", "/m/My Coder.gguf")
    assert (model.context, model.trained_context) == (32768, 131072)
    assert plan_for(facts, model="/m/My Coder.gguf", context=131072).model.context == 131072


def test_a_damaged_gguf_file_is_refused_with_what_is_wrong() -> None:
    header = LocalModelFacts(path="/m/x.gguf", problem="not a GGUF file")
    with pytest.raises(PlanRefused, match="not a GGUF file"):
        plan_for(structs.replace(host(LAPTOP), local_model=header), model="/m/x.gguf")


def test_an_unverified_base_is_refused_and_the_verified_one_named() -> None:
    text = refusal(RADEON, base="7.1")
    assert "digest" in text
    assert "rocm/dev-ubuntu-22.04:7.2.1" in text


def test_docker_without_a_gpu_serves_on_the_cpu_and_says_so() -> None:
    plan = plan_for(host(RADEON), engine="docker", gpu="none")
    assert (plan.engine, plan.gpu, plan.unmet) == ("docker", None, ())
    assert plan.headline.startswith("CPU only, in Docker")
    assert [image.name for image in plan.images] == ["llama-cpu", "endpoint"]
    assert [service.name for service in plan.services] == ["model", "inference", "endpoint"]
    assert not any(service.devices or service.group_add for service in plan.services)


def test_a_gpu_is_not_built_for_before_nvidias_terms_are_accepted() -> None:
    assert codes(plan_for(host(RADEON))) == ["terms"]
    accepted = plan_for(host(RADEON), accept_cuda_eula=True)
    assert accepted.unmet == ()
    assert accepted.host_environment["ZLUDA_STACK_ACCEPT_CUDA_EULA"] == "yes"


def test_a_file_of_the_users_is_mounted_and_no_model_is_fetched() -> None:
    header = LocalModelFacts(path="/m/coder.gguf", size=10, context_length=4096)
    facts = structs.replace(host(RADEON), local_model=header)
    plan = plan_for(facts, engine="docker", gpu="none", model="/m/coder.gguf")
    server, endpoint = plan.services
    assert server.volumes == ("/m/coder.gguf:/model.gguf:ro",)
    assert server.environment["MODEL_FILE"] == "/model.gguf"
    assert endpoint.depends_on == {"inference": "service_healthy"}


@pytest.mark.parametrize("given", ["/opt/my-zluda", "/opt/my-zluda/libcuda.so"])
def test_a_zluda_built_elsewhere_is_taken_by_its_folder_or_its_library(given: str) -> None:
    plan = plan_for(host(RADEON), zluda="path", zluda_path=given)
    assert [image.name for image in plan.images] == ["inference", "endpoint"]
    assert plan.images[0].contexts == {"zluda-path": "/opt/my-zluda"}
    assert "--zluda-path" in refusal(RADEON, zluda="path")


def test_zluda_as_it_is_published_is_a_part_of_the_inference_image_and_needs_no_hours() -> None:
    plan = plan_for(host(RADEON), zluda="release")
    assert [image.name for image in plan.images] == ["inference", "endpoint"]
    assert plan.images[0].methods == {"zluda": "zluda-release"}
    assert plan.images[0].contexts == {}


def test_only_the_kernels_of_the_target_or_of_its_sibling_are_built_in() -> None:
    own, borrowed = (plan_for(host(LAPTOP), gpu=gpu).images[1] for gpu in ("gfx1100", "gfx1031"))
    assert (own.arguments["GFX_TARGET"], own.arguments["KERNEL_TARGET"]) == ("gfx1100", "")
    assert borrowed.arguments["KERNEL_TARGET"] == "gfx1030"


def test_the_debian_variant_is_built_on_debian_alone() -> None:
    image = plan_for(host(RADEON), variant="debian").images[0]
    assert (image.development.name, image.runtime.name) == ("debian", "debian")


def test_an_unknown_variant_names_those_that_there_are() -> None:
    assert "rocm-ubuntu-22.04, debian" in refusal(RADEON, variant="arch")


def test_every_supported_target_gives_a_plan_with_images_and_services() -> None:
    facts = host(LAPTOP)
    for target in ("gfx1010", "gfx1030", "gfx1036", "gfx1100", "gfx1151", "gfx1201"):
        plan = plan_for(facts, gpu=target)
        assert [service.name for service in plan.services] == ["model", "inference", "endpoint"]
        assert plan.images[0].development.digest
        assert plan.images[0].runtime.digest


def test_the_services_are_the_same_on_every_host() -> None:
    here, there = plan_for(host("kfd-gid-148")), plan_for(host(LAPTOP), gpu="gfx1030")
    assert here.services == there.services


@pytest.mark.parametrize("wish", ["rx 7900 xtx", "RX7900XTX", "Radeon RX 7900 XTX", "1100"])
def test_a_card_can_be_named_as_people_name_it(wish: str) -> None:
    plan = plan_for(host(RADEON), gpu=wish)
    assert plan.gpu is not None
    assert plan.gpu.target == "gfx1100"


def test_an_override_that_is_a_target_is_told_its_right_form() -> None:
    facts = structs.replace(host(LAPTOP), environment={"HSA_OVERRIDE_GFX_VERSION": "gfx1103"})
    with pytest.raises(PlanRefused) as refused:
        plan_for(facts)
    assert "11.0.3" in refused.value.hint
    assert "unset" in refused.value.hint


def test_a_port_that_another_stack_of_ours_holds_is_named_with_the_stack() -> None:
    running = (RunningStack(name="other", port=9090),)
    facts = structs.replace(host(LAPTOP), listening_ports=(9090,), running=running)
    with pytest.raises(HostProblem, match="your own stack 'other'") as stopped:
        require_runnable(plan_for(facts, port=9090))
    assert "down --name other" in stopped.value.hint


def test_a_base_that_does_not_exist_is_told_even_where_none_is_used() -> None:
    assert "no base image" in refusal(LAPTOP, base="7.1.99")
    assert "no base variant" in refusal(LAPTOP, variant="arch")
