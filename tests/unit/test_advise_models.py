"""What `advise` says of a model: whether it fits, as a plan has it, on a card and on the CPU."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.unit import advised
from tests.unit.command_line import settle, write
from tests.unit.planning import GIB, configured, host
from zluda_stack.advise.models import Wanted, Weigher
from zluda_stack.advise.question import Subject
from zluda_stack.advise.situation import situation
from zluda_stack.catalog.load import load
from zluda_stack.errors import ExitCode, PlanRefused
from zluda_stack.host.facts import HostFacts
from zluda_stack.models.published import architecture_of
from zluda_stack.plan import Plan
from zluda_stack.plan.resolve import resolve

CATALOG = load()
LAPTOP = "laptop-without-gpu-or-docker"
SMALL_CARD = "rx-7600-gfx1102"
WITH_EXPERTS = "qwen3-coder-30b-a3b"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return settle(tmp_path, monkeypatch)


advise = partial(advised.advise, host=LAPTOP)
code = partial(advised.code, host=LAPTOP)


def weighed(facts: HostFacts, model: str, **settings: Any) -> Subject:
    """The model of the catalogue as advise sees it on this host."""
    asked, known = configured(**settings), CATALOG.models[model]
    weigher = Weigher(settings=asked.settings, catalog=CATALOG)
    wanted = Wanted(name=model, shape=architecture_of(known), trained=known.context_length)
    return weigher.of_model(wanted, situation(facts, asked, CATALOG, None))


def planned(facts: HostFacts, **settings: Any) -> Plan | None:
    """The plan with these settings, None where it is refused."""
    try:
        return resolve(facts, configured(**settings), CATALOG)
    except PlanRefused:
        return None


def fit_of(plan: Plan | None) -> str:
    if plan is None:
        return "no"
    return "yes" if plan.model.gpu_layers is None else "partly"


@pytest.mark.parametrize(
    "case",
    [
        *(SMALL_CARD, "radeon-rx-7900-xtx", "rx-5500m-gfx1012"),
        *("little-memory-to-build", "radeon-890m-gfx1150", "four-mi100-gfx908"),
    ],
)
@pytest.mark.parametrize("settings", [{}, {"context": 65536}])
def test_a_card_has_the_models_that_a_plan_puts_on_it(case: str, settings: dict[str, int]) -> None:
    facts = host(case)
    served = situation(facts, configured(), CATALOG, None)
    for name, model in CATALOG.models.items():
        if architecture_of(model) is None:
            continue
        found = weighed(facts, name, **settings)
        told = {"native": found.fits_native, "translated": found.fits_zluda}
        for profile, is_way in (
            ("native", served.native == "rocm"),
            ("translated", served.zluda == "yes"),
        ):
            plan = planned(facts, model=name, profile=profile, **settings)
            assert told[profile] == (fit_of(plan) if is_way else "-"), (name, profile)


@pytest.mark.parametrize("gib", [1, 6, 16, 64])
def test_the_cpu_has_the_models_that_a_plan_gives_it(gib: int) -> None:
    facts = structs.replace(host(LAPTOP), memory_bytes=gib * GIB)
    for name, model in CATALOG.models.items():
        if architecture_of(model) is None:
            continue
        plan = planned(facts, model=name, gpu="none")
        assert plan is not None
        unmet = any(one.code == "model-too-large" for one in plan.unmet)
        assert weighed(facts, name).fits_cpu == ("no" if unmet else "yes"), name


def test_a_model_with_experts_fits_with_some_of_them_outside_the_card() -> None:
    assert code(WITH_EXPERTS, host=SMALL_CARD) == "model-native-first"
    told = advise(WITH_EXPERTS, host=SMALL_CARD).out
    assert "of 48 layers outside the card" in told
    assert f"zluda-stack up --profile native --model {WITH_EXPERTS}" in told


def test_a_model_that_the_memory_does_not_hold_is_not_offered_for_the_cpu() -> None:
    told = advise("gpt-oss-120b")
    assert told.out.startswith("No AMD card is here, and the model does not fit this machine's")
    assert "and this machine has 16.0 GiB" in told.out
    assert "--gpu none --model gpt-oss-120b" not in told.out
    assert "zluda-stack up --gpu none --model smollm2-135m" in told.out
    small = advise("qwen2.5-coder-7b").out
    assert "zluda-stack up --gpu none --model qwen2.5-coder-7b" in small


def test_a_card_that_is_not_here_is_weighed_by_the_memory_that_is_told() -> None:
    asked = ("qwen2.5-coder-7b", "--gpu", "rx 7600")
    unknown = advise(*asked).out
    assert "whether it fits RX 7600 (gfx1102) is not known" in unknown
    assert "add --vram" in unknown
    assert "native: it fits" in advise(*asked, "--vram", "8G").out
    assert code(*asked, "--vram", "2G") == "model-in-part"
    assert code(*asked, "--vram", "900M") == "model-too-large"
    told = advise(*asked, "--vram", "2G").out
    assert "zluda-stack models list --fits --gpu gfx1102 --vram 2G" in told
    native = advise("llama-3.3-70b", "--gpu", "mi210", "--vram", "16G").out
    assert "models list --fits --gpu gfx90a --vram 16G --profile native" in native


@pytest.mark.parametrize("gpu", [(), ("--gpu", "0")])
def test_memory_is_told_of_a_card_that_is_not_here(gpu: tuple[str, ...]) -> None:
    told = advise("qwen2.5-coder-7b", *gpu, "--vram", "8G", host=SMALL_CARD)
    assert told.code == ExitCode.USAGE
    assert "--vram is the memory of" in told.err


def test_what_is_known_from_its_file_only_is_said_to_be_so() -> None:
    assert "known from its file only" in advise("granite-4.1-30b", host=SMALL_CARD).out


def test_a_context_that_the_settings_ask_for_counts(project: Path) -> None:
    write(project / "zluda-stack.yml", "context: 999424\n")
    told = advise("qwen2.5-coder-7b", host=SMALL_CARD).out
    assert "is longer than it was trained for" in told
    assert "$ zluda-stack up --profile native" not in told
