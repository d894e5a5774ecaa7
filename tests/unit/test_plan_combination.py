"""Which versions of ZLUDA and llama.cpp a stack is made of, and what follows from the choice."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.planning import GIB, card, configured, host, machine, plan_for, refusal
from zluda_stack.catalog.load import load
from zluda_stack.catalog.schema import Model
from zluda_stack.host.facts import LocalModelFacts
from zluda_stack.plan.changes import changes
from zluda_stack.plan.combination import other_versions
from zluda_stack.plan.reference import gpu_plans
from zluda_stack.plan.run import gpu_plan
from zluda_stack.render.project import render_project
from zluda_stack.settings import Settings

CATALOG = load()
OLDER = "zluda-llama.cpp-2025"
RADEON = host("radeon-rx-7900-xtx")


def loads(model: Model) -> bool:
    """True when the older server knows the model's architecture, or nobody can tell."""
    server = CATALOG.components["llama.cpp-2025"].server
    assert server is not None
    assert server.architectures is not None
    return model.shape is None or model.shape.architecture in server.architectures


def test_without_a_wish_the_versions_are_the_profiles_own() -> None:
    assert plan_for(RADEON).combination == CATALOG.defaults.combination
    assert plan_for(RADEON, profile="native").combination == CATALOG.defaults.native


def test_another_combination_has_its_own_image_and_the_same_zluda() -> None:
    plans = plan_for(RADEON), plan_for(RADEON, combination=OLDER)
    now, older = ({image.name: image for image in plan.images} for plan in plans)
    assert older["inference"].components["llama.cpp"].name == "llama.cpp-2025"
    assert older["inference"].tag == f"{now['inference'].tag}-llama.cpp-2025"
    assert older["zluda"].tag == now["zluda"].tag  # its hours are spent once


def test_its_server_is_built_from_its_own_source_and_started_its_own_way() -> None:
    text = render_project(plan_for(RADEON, combination=OLDER))["images/inference/Dockerfile"]
    assert "llama-cpp-python==0.3.14 --hash=sha256:" in text
    assert "--strip-components 3" in text
    assert "LLAMA_ARG_JINJA=1" in text
    assert "LLAMA_ARG_FIT" not in text


def test_the_compose_file_names_its_image_for_any_card() -> None:
    text = render_project(plan_for(RADEON, combination=OLDER))["compose/inference.yml"]
    (image,) = [line for line in text.splitlines() if "image: zluda-stack/inference:" in line]
    assert "${ZLUDA_STACK_GPU" in image
    assert image.endswith("}-llama.cpp-2025")


def test_the_endpoint_translates_for_a_server_that_does_not_speak_anthropics_api() -> None:
    *_, endpoint = plan_for(RADEON, combination=OLDER).services
    assert "--upstream-dialect=openai" in endpoint.command
    *_, endpoint = plan_for(RADEON).services
    assert not [word for word in endpoint.command if "dialect" in word]


def test_the_plan_says_who_chose_it() -> None:
    plan = plan_for(RADEON, combination=OLDER)
    (decision,) = [one for one in plan.decisions if one.what == "combination"]
    assert (decision.value, decision.because) == (OLDER, "given (flag --combination)")
    (warning,) = [one for one in plan.warnings if one.code == "unproven"]
    assert f"explain {OLDER}" in warning.hint


def test_a_change_of_it_is_told() -> None:
    now = plan_for(RADEON, model="smollm2-135m")
    older = plan_for(RADEON, model="smollm2-135m", combination=OLDER)
    (change,) = changes(now, older)
    assert str(change) == f"combination {now.combination} -> {OLDER}"
    before_it_was_said = structs.replace(now, combination=None)
    assert changes(before_it_was_said, older) == ()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"combination": "zluda-llama.cpp-2024"}, ("zluda-llama.cpp-2025", "zluda-llama.cpp")),
        ({"combination": "rocm-llama.cpp"}, ("not for the profile translated", OLDER)),
        ({"combination": OLDER, "profile": "native"}, ("not for the profile native", "rocm-")),
    ],
)
def test_one_that_is_not_there_or_not_for_the_profile_is_refused_with_those_that_are(
    flags: dict[str, str], words: tuple[str, ...]
) -> None:
    told = refusal(RADEON, **flags)
    assert [word for word in words if word not in told] == []


def test_without_containers_it_counts_for_nothing_but_must_exist() -> None:
    laptop = host("laptop-without-gpu-or-docker")
    assert plan_for(laptop, combination=OLDER).combination is None
    assert "no combination" in refusal(laptop, combination="newest")


@pytest.mark.parametrize("model", CATALOG.models.values(), ids=lambda model: model.name)
def test_a_model_that_the_older_server_cannot_load_is_refused_before_anything_is_built(
    model: Model,
) -> None:
    large = machine(card("gfx1100", gib=400))
    if loads(model):
        assert plan_for(large, model=model.name, combination=OLDER).model.name == model.name
    else:
        told = refusal(large, model=model.name, combination=OLDER)
        assert model.shape is not None
        assert model.shape.architecture in told
        assert "--combination auto" in told


def test_some_models_of_the_catalogue_are_older_than_it_and_some_are_newer() -> None:
    assert {loads(model) for model in CATALOG.models.values()} == {True, False}


@pytest.mark.parametrize("gib", [8, 16, 24, 48, 96])
def test_the_model_that_is_chosen_by_itself_is_one_that_the_server_loads(gib: int) -> None:
    plan = plan_for(machine(card("gfx1100", gib=gib)), combination=OLDER)
    assert plan.model.catalogued is not None
    assert loads(plan.model.catalogued)


def test_a_file_of_an_architecture_that_it_does_not_know_is_refused() -> None:
    new = LocalModelFacts(path="/m/new.gguf", name="new", architecture="qwen35", size=GIB)
    facts = structs.replace(RADEON, local_model=new)
    assert "architecture qwen35" in refusal(facts, model="/m/new.gguf", combination=OLDER)
    old = structs.replace(facts, local_model=structs.replace(new, architecture="qwen2"))
    assert plan_for(old, model="/m/new.gguf", combination=OLDER).model.path == "/m/new.gguf"


def test_each_of_the_two_names_the_other_for_a_server_that_fails_on_its_card() -> None:
    now, older = plan_for(RADEON), plan_for(RADEON, combination=OLDER)
    assert f"--combination {OLDER}`" in str(other_versions(CATALOG, now))
    assert f"--combination {CATALOG.defaults.combination}`" in str(other_versions(CATALOG, older))
    assert other_versions(CATALOG, plan_for(RADEON, profile="native")) is None
    assert other_versions(CATALOG, plan_for(RADEON, engine="docker", gpu="none")) is None


def test_a_program_of_ones_own_runs_on_the_chosen_versions_if_they_are_for_zluda() -> None:
    def images(**flags: str) -> list[str]:
        return [image.tag for image in gpu_plan(RADEON, configured(**flags), CATALOG).images]

    assert any(tag.endswith("-llama.cpp-2025") for tag in images(combination=OLDER))
    assert images(combination="rocm-llama.cpp", profile="native") == images()


def test_every_gfx_target_can_have_it() -> None:
    plans = gpu_plans(CATALOG, Settings(combination=OLDER))
    targets = [plan.gpu.target for plan in plans if plan.gpu]
    assert targets == list(CATALOG.combinations[CATALOG.defaults.combination].targets)
