"""What `resolve` decides, and what it refuses, for the machines in tests/cases."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.planning import codes, host, plan_for, refusal
from zluda_stack.errors import HostProblem, PlanRefused
from zluda_stack.host.facts import DockerFacts, LocalModelFacts, PodmanFacts, RunningStack
from zluda_stack.plan.resolve import require_runnable
from zluda_stack.plan.types import from_json, to_json

LAPTOP = "laptop-without-gpu-or-docker"
RADEON = "radeon-rx-7900-xtx"


def test_the_same_inputs_give_the_same_bytes_and_the_bytes_give_the_plan_back() -> None:
    first, second = plan_for(host(RADEON)), plan_for(host(RADEON))
    assert to_json(first) == to_json(second)
    assert from_json(to_json(first)) == first


def test_a_laptop_gets_the_embedded_engine_and_is_told_so() -> None:
    plan = plan_for(host(LAPTOP))
    assert (plan.engine, plan.gpu, plan.unmet) == ("embedded", None, ())
    assert "CPU" in plan.headline
    assert "/dev/kfd" in plan.headline


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
    assert [notice.code for notice in plan_for(host(RADEON)).unmet] == ["terms"]
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


def test_the_toolkit_by_apt_is_that_of_the_variant() -> None:
    for variant, part in (("auto", "cuda-toolkit-nvidia"), ("debian", "cuda-toolkit-debian")):
        plan = plan_for(host(RADEON), variant=variant, cuda_toolkit="apt")
        zluda, inference, _ = plan.images
        assert zluda.methods == {}
        assert inference.methods == {"cuda-toolkit": part}
        assert part in inference.components


def test_only_the_kernels_of_the_target_or_of_its_sibling_are_built_in() -> None:
    own, borrowed = (plan_for(host(LAPTOP), gpu=gpu).images[1] for gpu in ("gfx1100", "gfx1031"))
    assert (own.arguments["GFX_TARGET"], own.arguments["KERNEL_TARGET"]) == ("gfx1100", "")
    assert borrowed.arguments["KERNEL_TARGET"] == "gfx1030"


def test_the_kernels_that_an_override_asks_for_are_built_in_and_named_in_env() -> None:
    plan = plan_for(host("rx-7600-gfx1102"), hsa_override="11.0.0")
    assert plan.gpu is not None
    assert (plan.gpu.target, plan.gpu.kernel_target) == ("gfx1102", "gfx1100")
    assert plan.images[1].arguments["KERNEL_TARGET"] == "gfx1100"
    assert plan.host_environment["ZLUDA_STACK_KERNEL_TARGET"] == "gfx1100"
    own = plan_for(host("rx-7600-gfx1102"), hsa_override="11.0.2")
    assert (own.images[1].arguments["KERNEL_TARGET"], own.gpus[0].kernel_target) == ("", None)
    assert "ZLUDA_STACK_KERNEL_TARGET" not in own.host_environment


def test_the_debian_variant_is_built_on_debian_alone() -> None:
    image = plan_for(host(RADEON), variant="debian").images[0]
    assert (image.development.name, image.runtime.name) == ("debian", "debian")


def test_an_unknown_variant_names_those_that_there_are() -> None:
    assert "rocm-ubuntu-22.04, debian" in refusal(RADEON, variant="arch")


def test_every_supported_target_gives_a_plan_with_images_and_services() -> None:
    facts = host(LAPTOP)
    for target in ("gfx1010", "gfx1030", "gfx1035", "gfx1100", "gfx1151", "gfx1201"):
        plan = plan_for(facts, gpu=target)
        assert [service.name for service in plan.services] == ["model", "inference", "endpoint"]
        assert plan.images[0].development.digest
        assert plan.images[0].runtime.digest


def test_a_port_that_another_stack_of_ours_holds_is_named_with_the_stack() -> None:
    running = (RunningStack(name="other", port=9090),)
    facts = structs.replace(host(LAPTOP), listening_ports=(9090,), running=running)
    with pytest.raises(HostProblem, match="your own stack 'other'") as stopped:
        require_runnable(plan_for(facts, port=9090))
    assert "down --name other" in stopped.value.hint


def test_a_base_that_does_not_exist_is_told_even_where_none_is_used() -> None:
    assert "no base image" in refusal(LAPTOP, base="7.1.99")
    assert "no base variant" in refusal(LAPTOP, variant="arch")


@pytest.mark.parametrize(
    ("lost", "expected"),
    [("compose_version", "Docker Compose v2"), ("buildx_version", "docker buildx")],
)
def test_a_docker_without_its_plugins_is_told_before_anything_is_built(
    lost: str, expected: str
) -> None:
    facts = host(RADEON)
    lacking = structs.replace(facts.docker, **{lost: None})
    with pytest.raises(HostProblem, match=expected):
        require_runnable(plan_for(structs.replace(facts, docker=lacking)))


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("docker-compose-1.29", "Compose v2, and `docker compose` is 1.29.2"),
        ("docker-of-debian-12", r"Docker Engine 20.* is older than 25"),
        ("kfd-for-root-only", "mode 0600 keeps the group out of /dev/kfd"),
    ],
)
def test_what_is_too_old_or_shut_is_told_before_anything_is_built(case: str, expected: str) -> None:
    with pytest.raises(HostProblem, match=expected):
        require_runnable(plan_for(host(case), accept_cuda_eula=True))


@pytest.mark.parametrize("version", ["v2.40.2", "2", "5.0.1", "dev"])
def test_a_compose_that_is_new_enough_or_tells_no_number_will_do(version: str) -> None:
    facts = host(RADEON)
    docker = structs.replace(facts.docker, compose_version=version)
    assert codes(plan_for(structs.replace(facts, docker=docker))) == []


@pytest.mark.parametrize("problem", ["docker did not answer within 10 s", "podman did not answer"])
def test_a_docker_that_does_not_answer_is_there_and_told_in_its_own_words(problem: str) -> None:
    silent = structs.replace(host("radeon-without-docker"), docker=DockerFacts(problem=problem))
    with pytest.raises(HostProblem, match=problem) as stopped:
        require_runnable(plan_for(silent))
    assert "installed" not in stopped.value.message
    assert "Start the engine" in stopped.value.hint


def test_a_docker_that_only_does_not_tell_its_version_is_good_enough() -> None:
    facts = host(RADEON)
    nameless = structs.replace(facts.docker, client_version=None)
    assert codes(plan_for(structs.replace(facts, docker=nameless))) == []


def test_podman_as_docker_brings_compose_and_builds_by_itself() -> None:
    facts = host(RADEON)
    docker = structs.replace(
        facts.docker, emulated_by="podman", compose_version=None, buildx_version=None
    )
    podman = PodmanFacts(version="5.4.2", compose_version="2.39.1")
    assert codes(plan_for(structs.replace(facts, docker=docker, podman=podman))) == []
    assert codes(plan_for(structs.replace(facts, docker=docker, podman=None))) == ["docker"]
