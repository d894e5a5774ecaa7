"""The native profile: the same plan and compose file, with llama.cpp's HIP build and no ZLUDA."""

from __future__ import annotations

import re

import pytest
import yaml
from msgspec import structs

from tests.unit.doctoring import examined, finding
from tests.unit.planning import GIB, card, codes, host, machine, plan_for, refusal
from zluda_stack.catalog.load import load
from zluda_stack.catalog.schema import NativePath
from zluda_stack.doctor.types import Status
from zluda_stack.models.published import architecture_of
from zluda_stack.plan import Plan
from zluda_stack.plan.combination import combination_of
from zluda_stack.plan.gpu_target import lacks_kernels, serves
from zluda_stack.plan.model_fit import Room, on_each
from zluda_stack.render.compose import compose_path
from zluda_stack.render.project import render_project
from zluda_stack.settings import Settings

MI300X = "eight-mi300x-gfx942"
MI210 = card("gfx90a", 0, gib=64, name="Instinct MI210")


def test_an_instinct_card_is_planned_and_rendered_without_zluda_and_without_terms() -> None:
    plan = plan_for(machine(MI210), profile="native", gpu="gfx90a")
    assert plan.headline.startswith("GPU Instinct MI210 at 0000:03:00.0 by a native ROCm build")
    assert "the native profile serves it" in plan.headline
    assert [image.name for image in plan.images] == ["native", "endpoint"]
    assert plan.images[0].tag == "zluda-stack/native:gfx90a"
    assert plan.images[0].arguments["GFX_TARGET"] == "gfx90a"
    assert plan.unmet == ()
    assert "unproven" in [notice.code for notice in plan.warnings]
    files = render_project(plan)
    assert compose_path(plan) == "compose/native.yml"
    assert {"compose/native.yml", "images/native/Dockerfile"} <= set(files)
    assert "compose/selftest.yml" not in files
    for path in ("compose/native.yml", "compose/native-selftest.yml", "images/native/Dockerfile"):
        assert not re.search(r"zluda-cache|/opt/zluda(?!-stack)|CUDA", files[path]), path


def test_the_card_enters_by_its_nodes_and_their_groups() -> None:
    plan = plan_for(machine(MI210, gid=993), profile="native")
    services = yaml.safe_load(render_project(plan)["compose/native.yml"])["services"]
    server = services["inference"]
    assert server["build"]["target"] == "native"
    assert any(device.startswith("${HOST_ROOT:-}/dev/kfd") for device in server["devices"])
    assert plan.host_environment["HOST_KFD_GID"] == "993"
    assert plan.host_environment["HOST_RENDER_NODE"] == "/dev/dri/renderD128"
    assert server["volumes"] == ["models:/models:ro"]


def test_the_selftest_runs_hip_programs_of_the_servers_image_on_its_card() -> None:
    files = render_project(plan_for(machine(MI210), profile="native"))
    server = yaml.safe_load(files["compose/native.yml"])["services"]["inference"]
    services = yaml.safe_load(files["compose/native-selftest.yml"])["services"]
    assert list(services) == ["selftest"]
    assert services["selftest"]["command"] == ["/opt/selftest/selftest"]
    for key in ("image", "build", "devices", "group_add", "read_only", "cap_drop"):
        assert services["selftest"][key] == server[key]
    assert "COPY --from=selftest-hip-build /opt/selftest" in files["images/native/Dockerfile"]
    assert "images/selftest/src/hip/cuda_runtime.h" in files


def test_each_of_several_cards_gets_a_server() -> None:
    plan = plan_for(host(MI300X), profile="native", gpu="all")
    servers = [service.name for service in plan.services if service.build == "native"]
    assert servers == ["inference", *(f"inference-{number}" for number in range(2, 9))]
    assert plan.volumes == ("models",)


def test_a_model_that_fits_no_card_alone_is_spread_over_rocm_devices() -> None:
    cards = (card("gfx908", 0, gib=32), card("gfx908", 1, gib=32))
    plan = plan_for(machine(*cards), profile="native", gpu="all", model="llama-3.3-70b")
    (server,) = (service for service in plan.services if service.build == "native")
    assert plan.model.split
    assert server.environment["DEVICES"] == "ROCm0,ROCm1"
    (notice,) = (one for one in plan.warnings if one.code == "spread-over-cards")
    assert "ZLUDA" not in notice.message


def test_a_card_passes_for_the_sibling_that_has_kernels() -> None:
    plan = plan_for(machine(card("gfx1031")), profile="native")
    assert plan.images[0].arguments["KERNEL_TARGET"] == "gfx1030"
    assert plan.host_environment["ZLUDA_STACK_HSA_OVERRIDE"] == "10.3.0"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"gpu": "gfx90a"}, "--profile native"),
        ({"gpu": "gfx906"}, "--profile native"),
        ({"gpu": "gfx803"}, "Vulkan"),
        ({"gpu": "gfx803", "profile": "native"}, "the native profile does not serve gfx803"),
        ({"gpu": "gfx803", "profile": "native"}, "Vulkan"),
        ({"gpu": "gfx9999", "profile": "native"}, "The native profile serves gfx900"),
        (
            {"gpu": "gfx90a", "profile": "native", "hsa_override": "8.0.3"},
            "the native profile does not serve gfx803",
        ),
    ],
)
def test_what_a_profile_does_not_serve_is_refused_with_what_is_left(
    flags: dict[str, str], expected: str
) -> None:
    said = refusal(machine(card("gfx1100")), **flags)
    assert expected in said
    assert "gfx803" not in said.partition("serves")[2]


def test_a_card_that_only_the_native_profile_serves_is_not_passed_over_in_silence() -> None:
    (notice,) = (one for one in plan_for(host(MI300X)).warnings if one.code == "native-profile")
    assert "gfx942" in notice.message
    assert "--profile native" in notice.hint
    native = plan_for(host(MI300X), profile="native")
    assert "native-profile" not in [one.code for one in native.warnings]
    assert codes(native) == []


def test_the_doctor_names_the_profile_and_is_content_with_it() -> None:
    fix = finding(examined(MI300X), "hardware.unsupported-card").fix
    assert fix is not None
    assert fix.command.endswith("up --profile native")
    native = examined(MI300X, profile="native")
    assert finding(native, "hardware.unsupported-card").status is Status.OK
    polaris = finding(examined("rx-580-gfx803", profile="native"), "hardware.unsupported-card")
    assert "the native profile" in polaris.evidence
    assert "Vulkan" in polaris.reason


def test_every_target_of_the_combination_is_served_and_none_is_forgotten() -> None:
    catalog = load()
    served = [gpu.target for gpu in catalog.gpus.values() if serves("native", gpu)]
    bare = [gpu.target for gpu in catalog.gpus.values() if lacks_kernels(gpu)]
    wanted = [target for target in served if target not in bare]
    assert list(combination_of(catalog, Settings(profile="native")).targets) == wanted
    assert all(catalog.gpus[target].native is NativePath.ROCM for target in served)


@pytest.mark.parametrize(("model", "less"), [("qwen3-8b", True), ("deepseek-coder-v2-lite", False)])
def test_attention_takes_less_where_the_hip_build_has_kernels_for_it(
    model: str,
    less: bool,
) -> None:
    shape = architecture_of(load().models[model])
    assert shape is not None
    room = Room(cards=(64 * GIB,))
    translated = on_each(room)(shape, 32768, 512)
    native = on_each(structs.replace(room, profile="native"))(shape, 32768, 512)
    assert translated is not None
    assert native is not None
    assert (native.needs.total < translated.needs.total) is less


def profile_of(plan: Plan) -> str:
    """Why the plan says that it has the profile."""
    (decision,) = (one for one in plan.decisions if one.what == "profile")
    return decision.because


@pytest.mark.parametrize("case", ["nothing-at-all", "rx-580-gfx803"])
def test_a_profile_that_is_of_no_effect_without_a_card_is_told(case: str) -> None:
    plan = plan_for(host(case), profile="native")
    assert plan.gpu is None
    (told,) = (one for one in plan.warnings if one.code == "profile-unused")
    assert "the native profile was asked for, and it is of no effect" in told.message
    assert plan.decisions[0].because in told.hint
    assert profile_of(plan).endswith("it counts for a card, and here the CPU computes")


def test_who_asked_for_the_cpu_too_is_not_warned_of_the_profile() -> None:
    for wish in ({"gpu": "none"}, {"engine": "embedded"}):
        plan = plan_for(machine(MI210), profile="native", **wish)
        assert "profile-unused" not in [one.code for one in plan.warnings]
        assert "it counts for a card" in profile_of(plan)
    assert "profile-unused" not in [one.code for one in plan_for(host("nothing-at-all")).warnings]


def test_the_profile_is_among_the_decisions_when_it_was_given() -> None:
    (decision,) = (
        one for one in plan_for(machine(MI210), profile="native").decisions if one.what == "profile"
    )
    assert (decision.value, decision.because) == ("native", "given (flag --profile)")
