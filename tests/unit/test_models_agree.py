"""What `plan`, `models explain`, `models fit` and `models list --fits` say of the same card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.unit.command_line import CASES, run, settle
from tests.unit.planning import GIB, card, host, machine, plan_for, refusal
from zluda_stack.host.capture import save
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.types import ModelPlan, Plan

SMALL = "rx-7600-gfx1102"  # 8 GiB
HOSTS = (
    SMALL,
    "radeon-rx-7900-xtx",
    "radeon-780m-gfx1103",
    "strix-halo-gfx1151-small-carveout",
    "two-rx-7900-xtx",
    "little-memory-to-build",
    "dgpu-gfx1100-and-igpu-gfx1036",
)
MODELS = ("gpt-oss-20b", "qwen3-coder-30b-a3b", "phi-4", "llama-3.3-70b", "smollm2-135m")
PROFILES = ("translated", "native", "webui")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(tmp_path, monkeypatch)


def asked(case: str, *command: str) -> Any:
    return run("--host-facts", str(CASES / f"{case}.json"), "models", *command, "--json").json


def explained(case: str, model: str, *flags: str) -> dict[str, Any]:
    """What `models explain` says of the first card."""
    return dict(asked(case, "explain", model, *flags)["use"]["cards"][0])


def served(model: ModelPlan) -> tuple[int, int, int, int | None]:
    """The context, the batch, layers whose experts are outside, and layers on the card."""
    layers = None if model.gpu_layers is None else model.gpu_layers - 1
    return (model.context, model.batch or 0, model.cpu_moe, layers)


def as_explained(planned: dict[str, Any]) -> tuple[int, int, int, int | None]:
    whole = planned["gpu_layers"] == planned["layers"]
    layers = None if whole else planned["gpu_layers"]
    return (planned["context"], planned["batch"], planned["experts_outside"], layers)


def decided(plan: Plan) -> dict[str, str]:
    return {each.what: f"{each.value}: {each.because}" for each in plan.decisions}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("case", HOSTS)
def test_models_explain_tells_what_a_plan_takes(case: str, profile: str) -> None:
    facts = host(case)
    if not facts.gpus:
        pytest.skip("no card")
    for model in MODELS:
        found = explained(case, model, "--profile", profile)
        if found["planned"] is None:
            assert refusal(facts, model=model, gpu="0", profile=profile), model
        else:
            planned = plan_for(facts, model=model, gpu="0", profile=profile).model
            assert as_explained(found["planned"]) == served(planned), model


@pytest.mark.parametrize("case", HOSTS)
@pytest.mark.parametrize("context", [8192, 16384])
def test_models_fit_tells_what_a_plan_takes_with_the_same_context(case: str, context: int) -> None:
    facts = host(case)
    if not facts.gpus:
        pytest.skip("no card")
    for model in ("gpt-oss-20b", "qwen3-coder-30b-a3b"):
        found = asked(case, "fit", model, "--ctx", str(context))["cards"][0]
        if found["unserved"] or not (found["fits"] or found["experts_outside"]):
            assert refusal(facts, model=model, gpu="0", context=context), model
            continue
        planned = plan_for(facts, model=model, gpu="0", context=context).model
        outside = found["experts_outside"] or {"layers": 0, "batch": found["batch"]}
        assert (outside["layers"], outside["batch"]) == (planned.cpu_moe, planned.batch), model


def test_a_client_can_use_what_is_served_with_experts_in_the_machines_memory() -> None:
    """As `models fit` and a plan say of the same card, it does not fit as a whole and is served."""
    out = run("models", "explain", "gpt-oss-20b", "--vram", "8G").out
    (line,) = [line for line in out.splitlines() if line.startswith("Claude Code, as installed")]
    assert line.endswith("yes, with experts in the machine's memory")
    uses = run("models", "explain", "gpt-oss-20b", "--vram", "8G", "--json").json["use"]["uses"]
    assert all(use["works"] and not use["why"] for use in uses)
    assert plan_for(host(SMALL), model="gpt-oss-20b", context=24576).model.cpu_moe
    (card_,) = run("models", "list", "--fits", "--vram", "8G", "--json").json
    ways = {model["name"]: model["ways"] for model in card_["models"]}
    assert "claude/default" in ways["gpt-oss-20b"]


def test_a_client_can_use_what_is_served_with_layers_left_to_the_cpu() -> None:
    out = run("models", "explain", "qwen3-14b", "--vram", "8G").out
    assert "yes, with layers left to the CPU" in out
    assert plan_for(host(SMALL), model="qwen3-14b", context=24576).model.gpu_layers


def test_where_a_shorter_context_fits_a_client_is_told_that_as_a_plan_tells_it() -> None:
    uses = asked(SMALL, "explain", "qwen3-8b")["use"]["uses"]
    assert uses[0]["why"] == "only 17664 tokens fit"
    assert "With --context 17664 it fits" in refusal(SMALL, model="qwen3-8b", context=24576)


def test_experts_for_which_the_machine_has_no_memory_are_offered_by_nobody(tmp_path: Path) -> None:
    facts = machine(card("gfx1100", gib=8), memory_bytes=4 * GIB, memory_available_bytes=3 * GIB)
    assert "do not hold the rest" in refusal(facts, model="gpt-oss-20b", context=8192)
    (fit,) = on(facts, tmp_path, "fit", "gpt-oss-20b", "--ctx", "8k")["cards"]
    assert (fit["fits"], fit["experts_outside"]) == (False, None)
    use = on(facts, tmp_path, "explain", "gpt-oss-20b")["use"]
    assert use["cards"][0]["planned"] is None
    assert {each["why"] for each in use["uses"]} == {"it does not fit"}


def on(facts: HostFacts, folder: Path, *command: str) -> Any:
    path = folder / "host.json"
    save(facts, path)
    return run("--host-facts", str(path), "models", *command, "--json").json


def test_graphics_in_a_processor_have_what_the_machine_has_free(tmp_path: Path) -> None:
    igpu = card("gfx1151", gib=1, integrated=True)
    facts = structs.replace(machine(igpu), memory_available_bytes=6 * GIB)
    (found,) = on(facts, tmp_path, "explain", "qwen3-4b")["use"]["cards"]
    (gpu,) = plan_for(facts, gpu="0", profile="native").gpus
    assert (found["memory"], found["free"]) == (32 * GIB, gpu.free_bytes) == (32 * GIB, 6 * GIB)


def test_the_server_of_the_profile_tells_how_many_requests_share_the_context() -> None:
    fits = {
        profile: asked(SMALL, "fit", "qwen3-4b", "--profile", profile)["slots"]
        for profile in PROFILES
    }
    assert fits == {"translated": 4, "native": 4, "webui": 4}
    assert asked(SMALL, "fit", "qwen3-4b", "--slots", "2")["slots"] == 2


def test_an_older_server_takes_one_request_at_a_time_in_every_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ZLUDA_STACK_COMBINATION", "zluda-llama.cpp-2025")
    assert asked(SMALL, "fit", "qwen3-4b")["slots"] == 1
    assert asked(SMALL, "list", "--fits")[0]["slots"] == 1
    planned = plan_for(host(SMALL), model="qwen3-4b", combination="zluda-llama.cpp-2025").model
    assert as_explained(explained(SMALL, "qwen3-4b")["planned"]) == served(planned)


def test_a_model_that_the_server_of_the_settings_cannot_load_is_told_by_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = "zluda-llama.cpp-2025"
    assert "cannot load" in refusal(SMALL, model="gpt-oss-20b", combination=old)
    monkeypatch.setenv("ZLUDA_STACK_COMBINATION", old)
    assert "cannot load gpt-oss models" in run("models", "fit", "gpt-oss-20b", "--vram", "8G").err
    use = asked(SMALL, "explain", "gpt-oss-20b")["use"]
    assert use["cards"][0]["planned"] is None
    assert all("cannot load it" in each["why"] for each in use["uses"])
    listed = run("models", "list", "--fits", "--vram", "8G")
    assert "gpt-oss-20b" not in listed.out
    assert "which the server of these settings cannot load" in listed.err


def test_a_plan_says_for_which_context_so_many_experts_are_outside_and_in_which_batch() -> None:
    usual = decided(plan_for(host(SMALL), model="gpt-oss-20b"))
    assert usual["batch"].startswith("512: the largest")
    assert "24 of 24" in usual["experts outside"]
    assert "a context of 24576 tokens does not fit" in usual["experts outside"]
    assert "512 MiB of it left to other programs" in usual["memory"]
    longer = decided(plan_for(host(SMALL), model="gpt-oss-20b", context=32768))
    assert longer["batch"].startswith("256: a context of 32768 tokens does not fit with 512")
    assert "19 of 24" in longer["experts outside"]
    assert "left to other programs" not in longer["memory"]


def test_models_explain_says_how_up_serves_it_and_what_it_leaves_alone() -> None:
    out = run("models", "explain", "gpt-oss-20b", "--vram", "8G", "--profile", "native").out
    assert "up --model gpt-oss-20b --profile native` takes a context of" in out
    assert "512 MiB are left to other programs" in out
    assert (
        ": as with `up --context 32768`" in run("models", "fit", "gpt-oss-20b", "--vram", "8G").out
    )


@pytest.mark.parametrize("profile", PROFILES)
def test_a_card_that_no_profile_serves_is_told_with_what_does(profile: str) -> None:
    described = ("--gpu", "gfx803", "--vram", "8G", "--profile", profile)
    words = "No profile does. No ROCm kernels are left for this card: use llama.cpp's own Vulkan"
    told = (
        run("models", "fit", "qwen3-8b", *described).out,
        run("models", "explain", "qwen3-8b", *described).out,
        " ".join(run("models", "list", "--fits", *described).out.split()),
        run("--host-facts", str(CASES / "rx-580-gfx803.json"), "models", "fit", "qwen3-8b").out,
    )
    assert all(words in out for out in told)
    uses = run("models", "explain", "qwen3-8b", *described, "--json").json["use"]["uses"]
    assert {use["why"] for use in uses} == {f"the {profile} profile does not serve the card"}


def test_a_card_of_another_profile_is_told_which() -> None:
    described = ("--gpu", "gfx906", "--vram", "16G")
    out = run("models", "fit", "qwen3-8b", *described).out
    assert "What does: --profile native or --profile webui." in out
    assert "gfx906: " not in run("models", "fit", "qwen3-8b", *described, "--profile", "native").out


def test_a_folder_is_told_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in (".", "./models", "models", str(tmp_path)):
        told = run("models", "fit", name, "--vram", "8G").err
        assert "it is a folder, and a model is a .gguf file" in told
        assert "Did you mean" not in told
    assert "it is a folder" in run("plan", "--model", ".").err
    assert "models fit ./a.gguf` computes" in run("models", "explain", "./a.gguf").err
