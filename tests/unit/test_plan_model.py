"""Which model a card gets, with which context, and what is said where something does not fit."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.unit.command_line import run, settle
from tests.unit.gguf_shapes import SHAPES, write_shape
from tests.unit.planning import CASES, GIB, card, configured, host, machine
from zluda_stack import paths
from zluda_stack.catalog.load import load
from zluda_stack.catalog.schema import Catalog, Model
from zluda_stack.errors import ExitCode, PlanRefused
from zluda_stack.host.facts import GpuFacts, HostFacts, LocalModelFacts, RunningStack
from zluda_stack.models.fit import Serving, needs
from zluda_stack.models.fit_split import needs_by_card
from zluda_stack.models.gguf_header import read_header
from zluda_stack.models.layout import Layout, Record, StoredFile
from zluda_stack.models.published import architecture_of
from zluda_stack.plan import Plan, default_model
from zluda_stack.plan.default_model import DefaultModel, largest_that_fits
from zluda_stack.plan.model_fit import Room
from zluda_stack.plan.resolve import resolve

FULL, SIMPLE = 24576, 8192
LOCAL = "/m/local.gguf"


@cache
def real() -> Catalog:
    return load()


def coder(name: str, size: str, *, layers: int, wide: int, **changes: Any) -> Model:
    """A made-up model that calls tools; all it shares with real ones is its kind of shape."""
    source = {"source": "made up", "date": "2026-11-30", "evidence": "unproven"}
    shape = {
        "architecture": "qwen3",
        "layers": layers,
        "embedding": wide,
        "vocabulary": 151936,
        "heads": 32,
        "kv_heads": 8,
        "head": 128,
        "wide": 4 * wide,
        "provenance": source,
    }
    known = {
        "name": name,
        "title": name,
        "parameters": size,
        "quantisation": "Q4_K_M",
        "context_length": 131072,
        "tools": True,
        "licence": "Apache-2.0",
        "shape": shape,
        "files": [{"name": f"{name}.gguf", "sha256": None, "size": None}],
        "provenance": source,
    }
    return msgspec.convert(known | changes, Model)


SMALL = coder("small", "4B", layers=36, wide=2560)
LARGE = coder("large", "14B", layers=40, wide=5120)


def catalogue(*models: Model) -> Catalog:
    """The real catalogue, with these models and the default one only."""
    default = real().models[real().defaults.model]
    named = {model.name: model for model in (default, *models)}
    return structs.replace(real(), models=named)


def plan_on(
    *cards: GpuFacts,
    catalog: Catalog | None = None,
    facts: dict[str, Any] | None = None,
    **flags: Any,
) -> Plan:
    """The plan for a machine with these cards, which computes on all of them."""
    return resolve(
        machine(*cards, **facts or {}),
        configured(**flags),
        catalog or catalogue(SMALL, LARGE),
    )


def refused(*cards: GpuFacts, **wish: Any) -> PlanRefused:
    with pytest.raises(PlanRefused) as found:
        plan_on(*cards, **wish)
    return found.value


def why(plan: Plan, what: str) -> str:
    return next(each.because for each in plan.decisions if each.what == what)


def total(plan: Plan) -> int:
    """What the planned model takes of a card, in bytes."""
    catalogued = plan.model.catalogued
    shape = architecture_of(catalogued) if catalogued else None
    assert shape is not None
    asked = Serving(
        context=plan.model.context,
        batch=plan.model.batch,
        gpu_layers=plan.model.gpu_layers,
        cpu_moe=plan.model.cpu_moe,
    )
    return needs(shape, asked).total


def test_the_largest_that_leaves_a_coding_client_its_prompt_is_taken_and_the_numbers_are_told() -> (
    None
):
    plan = plan_on(card("gfx1100", gib=24))
    assert plan.model.name == "large"
    assert plan.model.context >= FULL
    assert "24576 tokens that Claude Code needs" in why(plan, "model")
    assert "24.0 GiB are free" in why(plan, "memory")
    assert "context-too-small" not in [notice.code for notice in plan.warnings]
    smaller = plan_on(card("gfx1100", gib=12))
    assert (smaller.model.name, smaller.model.context >= FULL) == ("small", True)


def test_a_card_without_room_for_the_whole_prompt_gets_a_model_for_the_simple_mode() -> None:
    plan = plan_on(card("gfx1102", gib=5))
    assert plan.model.name == "small"
    assert SIMPLE <= plan.model.context < FULL
    assert "CLAUDE_CODE_SIMPLE" in why(plan, "model")


def test_a_card_too_small_for_any_coder_gets_the_default_and_is_told_why() -> None:
    plan = plan_on(card("gfx1034", gib=2))
    assert plan.model.name == real().defaults.model
    (told,) = [notice for notice in plan.warnings if notice.code == "no-coding-model"]
    assert "2.0 GiB" in told.message


def test_a_model_that_calls_no_tools_or_has_to_be_asked_for_is_not_taken_unasked() -> None:
    mute = structs.replace(LARGE, tools=False)
    gated = structs.replace(LARGE, restriction="ask its maker first")
    for other in (mute, gated):
        assert (
            plan_on(card("gfx1100", gib=24), catalog=catalogue(SMALL, other)).model.name == "small"
        )
        named = plan_on(card("gfx1100", gib=24), catalog=catalogue(SMALL, other), model="large")
        assert named.model.name == "large"


def test_of_two_as_large_the_one_that_is_here_is_taken() -> None:
    twin = structs.replace(LARGE, name="twin")
    for first in ("large", "twin"):
        facts = {"models_ready": (first,)}
        plan = plan_on(card("gfx1100", gib=24), catalog=catalogue(LARGE, twin), facts=facts)
        assert plan.model.name == first
    ready = {"models_ready": ("small",)}
    assert plan_on(card("gfx1100", gib=24), facts=ready).model.name == "large"


def test_what_others_hold_of_the_card_counts_and_the_own_stack_does_not() -> None:
    busy = card("gfx1100", gib=24, vram_used_bytes=16 * GIB)
    assert plan_on(busy).model.name == "small"
    before = {"0000:03:00.0": 24 * GIB}
    ours = {"running": (RunningStack(name="default", port=8080, free_bytes=before),)}
    started = plan_on(card("gfx1100", gib=24))
    assert plan_on(busy, facts=ours).model == started.model
    assert plan_on(busy, facts=ours, name="second").model.name == "small"


def test_integrated_graphics_have_what_the_machine_has_free_of_their_share() -> None:
    apu = card("gfx1151", vram_bytes=GIB // 2, gtt_bytes=120 * GIB, integrated=True)
    assert plan_on(apu, facts={"memory_available_bytes": 118 * GIB}).gpus[0].free_bytes == 118 * GIB
    little = plan_on(apu, facts={"memory_available_bytes": 10 * GIB})
    assert little.model.name == "small"
    carved = card("gfx1151", vram_bytes=96 * GIB, gtt_bytes=16 * GIB, integrated=True)
    assert plan_on(carved, facts={"memory_available_bytes": 8 * GIB}).model.name == "large"


def test_each_of_several_cards_must_hold_the_model() -> None:
    cards = (card("gfx1100", gib=24), card("gfx1100", 1, gib=24, vram_used_bytes=14 * GIB))
    assert plan_on(*cards, gpu="all").model.name == "small"
    assert plan_on(*cards, gpu="0").model.name == "large"


def test_what_fits_no_card_alone_is_spread_over_all_by_one_server() -> None:
    cards = (card("gfx1100", gib=16), card("gfx1100", 1, gib=8))
    plan = plan_on(*cards, gpu="1,0", model="large")
    assert plan.model.gpu_layers is None
    first, second = plan.model.split
    assert first + second == 41
    assert first > second
    shape = architecture_of(LARGE)
    assert shape is not None
    asked = Serving(context=plan.model.context, batch=plan.model.batch)
    taken = needs_by_card(shape, asked, plan.model.split)
    assert taken[0].total <= 16 * GIB
    assert taken[1].total <= 8 * GIB
    assert "spread-over-cards" in [notice.code for notice in plan.warnings]
    assert "one model server" in plan.headline


def test_a_server_for_all_cards_gets_them_all_and_is_told_what_each_holds() -> None:
    cards = (card("gfx1100", gib=12), card("gfx1100", 1, gib=12))
    plan = plan_on(*cards, gpu="all", model="large")
    model, server, endpoint = plan.services
    assert (model.name, server.name, endpoint.name) == ("model", "inference", "endpoint")
    assert len(server.devices) == 3
    assert server.environment["DEVICES"] == "CUDA0,CUDA1"
    assert plan.host_environment["ZLUDA_STACK_TENSOR_SPLIT"] == ",".join(map(str, plan.model.split))
    assert plan.host_environment["HOST_RENDER_NODE_2"] == "/dev/dri/renderD129"
    assert len(server.group_add) == len(set(server.group_add)) == 2
    assert plan.volumes[:2] == ("models", "zluda-cache")
    alone = plan_on(*cards, gpu="all", model="small")
    assert [one.name for one in alone.services][1:3] == ["inference", "inference-2"]
    assert "ZLUDA_STACK_TENSOR_SPLIT" not in alone.host_environment


def test_a_context_too_long_for_all_cards_together_is_refused_too() -> None:
    cards = (card("gfx1100", gib=12), card("gfx1100", 1, gib=12))
    error = refused(*cards, gpu="all", model="large", context=131072)
    assert "12.0 and 12.0 GiB are free" in error.message
    fits = re.search(r"--context ([0-9]+)", error.hint)
    assert fits is not None
    assert plan_on(*cards, gpu="all", model="large", context=int(fits[1])).model.split


def test_without_known_memory_nothing_is_fitted() -> None:
    unknown = plan_on(card("gfx1100", vram_bytes=None, gtt_bytes=None))
    elsewhere = resolve(host("laptop-without-gpu-or-docker"), configured(gpu="gfx1100"), real())
    for plan in (unknown, elsewhere):
        assert plan.model.name == real().defaults.model
        assert (plan.model.batch, plan.model.gpu_layers) == (512, None)
        assert "memory" not in [each.what for each in plan.decisions]


def test_the_cpu_keeps_the_small_model() -> None:
    facts = structs.replace(host("laptop-without-gpu-or-docker"), memory_bytes=256 * GIB)
    assert resolve(facts, configured(), real()).model.name == real().defaults.model
    on_cpu = plan_on(card("gfx1100", gib=48), engine="docker", gpu="none")
    assert on_cpu.model.name == real().defaults.model


def test_a_smaller_batch_is_taken_where_it_leaves_a_useful_context() -> None:
    batches = {
        gib: plan_on(card("gfx1100", gib=gib), model="large").model.batch for gib in (24, 16)
    }
    assert batches[24] == 512
    assert batches[16] in (128, 256)
    plan = plan_on(card("gfx1100", gib=16), model="large")
    assert plan.model.context >= FULL
    assert "512" in why(plan, "batch")


def test_a_context_that_does_not_fit_is_refused_with_the_one_that_would() -> None:
    error = refused(card("gfx1100", gib=16), model="large", context=131072)
    assert error.exit_code == ExitCode.REFUSED
    assert "131072" in error.message
    assert "16.0 GiB are free" in error.message
    fits = re.search(r"--context ([0-9]+)", error.hint)
    assert fits is not None
    plan = plan_on(card("gfx1100", gib=16), model="large", context=int(fits[1]))
    assert total(plan) <= 16 * GIB
    refused(card("gfx1100", gib=16), model="large", context=int(fits[1]) + 256)


def test_a_context_that_was_asked_for_decides_the_model_too() -> None:
    assert plan_on(card("gfx1100", gib=16), context=65536).model.name == "small"
    plan = plan_on(card("gfx1100", gib=48), context=65536)
    assert (plan.model.name, plan.model.context) == ("large", 65536)
    assert "a context of 65536 tokens" in why(plan, "model")


def on_laptop(gib: int, **known: Any) -> tuple[HostFacts, Plan]:
    """The plan for the CPU of a machine with so much memory; `model` and `context` are wishes."""
    wishes = {key: known.pop(key) for key in ("model", "context", "engine") if key in known}
    facts = structs.replace(
        host("laptop-without-gpu-or-docker"), memory_bytes=gib * GIB, models_ready=(), **known
    )
    return facts, resolve(facts, configured(**wishes), real())


def test_a_context_that_the_machines_memory_does_not_hold_is_shortened_and_that_is_told() -> None:
    _, plan = on_laptop(24, model="seed-oss-36b")

    assert 8192 <= plan.model.context < 32768
    assert "as much as this machine's memory has room for" in why(plan, "context")
    assert "this machine has 24.0 GiB" in why(plan, "memory")
    assert "model-too-large" not in [notice.code for notice in plan.unmet]
    assert on_laptop(64, model="seed-oss-36b")[1].model.context == 32768


def test_a_context_that_was_asked_for_is_not_shortened_but_what_fits_is_named() -> None:
    _, plan = on_laptop(24, model="seed-oss-36b", context=32768)

    (lack,) = [notice for notice in plan.unmet if notice.code == "model-too-large"]
    assert "takes 28.5 GiB of memory, and this machine has 24.0 GiB" in lack.message
    fitting = int(re.findall(r"--context (\d+) it fits", lack.hint)[0])
    _, again = on_laptop(24, model="seed-oss-36b", context=fitting)
    assert "model-too-large" not in [notice.code for notice in again.unmet]


def test_a_model_that_the_machines_memory_does_not_hold_at_all_is_not_started() -> None:
    _, plan = on_laptop(16, model="seed-oss-36b")

    (lack,) = [notice for notice in plan.unmet if notice.code == "model-too-large"]
    assert "this machine has 16.0 GiB" in lack.message
    assert "it fits" not in lack.hint
    assert "models list" in lack.hint


def test_memory_that_other_programs_hold_is_told_but_not_what_the_stack_itself_holds() -> None:
    facts, plan = on_laptop(32, model="seed-oss-36b", memory_available_bytes=8 * GIB)
    assert "8.0 GiB are free now" in told(plan, "little-memory-free")

    own = RunningStack(name="default", port=8080)
    again = resolve(
        structs.replace(facts, running=(own,)), configured(model="seed-oss-36b"), real()
    )
    assert again.model == plan.model
    assert told(again, "little-memory-free") == ""


def test_the_memory_of_an_engine_elsewhere_is_not_that_of_this_machine() -> None:
    facts, _ = on_laptop(4)
    away = structs.replace(facts, docker=structs.replace(facts.docker, remote=True))
    plan = resolve(away, configured(model="seed-oss-36b", engine="docker", gpu="none"), real())

    assert plan.model.context == 32768
    assert "model-too-large" not in [notice.code for notice in plan.unmet]


def test_a_disk_without_room_for_the_model_is_told_before_it_is_fetched() -> None:
    facts, plan = on_laptop(64, models_free_bytes=100_000_000)
    assert "takes 191.2 MB of disk for a while" in told(plan, "little-disk")
    here = structs.replace(facts, models_ready=(real().defaults.model,))
    assert told(resolve(here, configured(), real()), "little-disk") == ""
    assert told(on_laptop(64, models_free_bytes=192_000_000)[1], "little-disk") == ""

    docker = host("disk-with-30-gb-free").docker
    full = structs.replace(docker, free_bytes=10 * 10**9)
    on_card = plan_on(card("gfx1100", gib=24), catalog=real(), facts={"docker": full})
    assert "Docker's disk has 10000.0 MB free" in told(on_card, "little-disk")


def test_a_card_of_another_machine_gets_a_model_once_its_memory_is_named() -> None:
    laptop = structs.replace(host("laptop-without-gpu-or-docker"), memory_bytes=GIB)
    unknown = resolve(laptop, configured(gpu="gfx1100"), real())
    assert "--vram 24G names it" in why(unknown, "model")

    elsewhere = resolve(laptop, configured(gpu="gfx1100", vram=24 * GIB), real())
    here = resolve(machine(card("gfx1100", gib=24)), configured(), real())
    assert elsewhere.model == here.model
    assert elsewhere.model.name != real().defaults.model


def test_the_memory_of_a_card_that_is_here_is_what_it_says_itself() -> None:
    error = refused(card("gfx1100", gib=16), vram=24 * GIB)
    assert "is here and has 16.0 GiB" in error.message
    assert "Leave --vram out" in error.hint


def test_a_rendered_folder_has_the_model_for_the_named_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(tmp_path, monkeypatch)
    wish = ("--gpu", "gfx1100", "--vram", "24G", "--out", str(tmp_path / "stack"))
    done = run("--host-facts", str(CASES / "laptop-without-gpu-or-docker.json"), "render", *wish)
    assert done.code == ExitCode.OK, done.err
    written = (tmp_path / "stack" / "compose" / ".env").read_text()
    assert "ZLUDA_STACK_MODEL=" in written
    assert f"ZLUDA_STACK_MODEL={real().defaults.model}" not in written


def told(plan: Plan, code: str) -> str:
    """What the warning of this code says, "" where there is none."""
    return next((each.message for each in plan.warnings if each.code == code), "")


def test_layers_that_do_not_fit_are_left_to_the_cpu_and_that_is_told() -> None:
    plan = plan_on(card("gfx1102", gib=8), model="large")
    layers = plan.model.gpu_layers
    assert layers is not None
    assert 0 < layers <= 40
    assert total(plan) <= 8 * GIB
    (told,) = [notice for notice in plan.warnings if notice.code == "partly-on-card"]
    assert "of 40 layers" in told.message
    assert "--model small" in told.hint
    assert plan.host_environment["ZLUDA_STACK_GPU_LAYERS"] == str(layers)
    assert plan.host_environment["ZLUDA_STACK_BATCH"] == str(plan.model.batch)


def test_the_experts_of_as_few_layers_as_will_do_are_left_out_before_whole_layers() -> None:
    plan = plan_on(card("gfx1101", gib=12), catalog=real(), model="qwen3-coder-30b-a3b")
    model = plan.model
    assert (model.gpu_layers, model.batch) == (None, 512)
    assert 0 < model.cpu_moe < 48
    assert model.context >= FULL
    assert total(plan) <= 12 * GIB
    shape = architecture_of(real().models[model.name])
    assert shape is not None
    fewer = Serving(context=FULL, cpu_moe=model.cpu_moe - 1)
    assert needs(shape, fewer).total > 12 * GIB - GIB // 2
    assert f"those of {model.cpu_moe} of 48 layers" in told(plan, "partly-on-card")
    assert plan.host_environment["ZLUDA_STACK_CPU_MOE"] == str(model.cpu_moe)
    assert "ZLUDA_STACK_GPU_LAYERS" not in plan.host_environment
    server = next(one for one in plan.services if one.name == "inference")
    assert server.environment["CPU_MOE"] == "${ZLUDA_STACK_CPU_MOE:-}"


def test_a_model_whose_experts_do_not_fit_is_served_when_named_and_never_chosen() -> None:
    only = catalogue(real().models["qwen3-coder-30b-a3b"])
    small = card("gfx1102", gib=8)
    assert plan_on(small, catalog=only).model.name == real().defaults.model
    assert plan_on(small, catalog=only, model="qwen3-coder-30b-a3b").model.cpu_moe


def test_a_context_for_which_experts_are_left_out_is_served_and_the_one_for_all_is_told() -> None:
    roomy = card("gfx1100", gib=24)
    wish: dict[str, Any] = {"catalog": real(), "model": "qwen3-coder-30b-a3b"}
    plan = plan_on(roomy, context=131072, **wish)
    assert plan.model.cpu_moe
    (notice,) = [one for one in plan.warnings if one.code == "partly-on-card"]
    shorter = re.fullmatch(r"With --context (\d+) all of it fits\.", notice.hint)
    assert shorter is not None
    assert plan_on(roomy, context=int(shorter[1]), **wish).model.cpu_moe == 0


def test_where_not_even_the_rest_fits_whole_layers_are_left_out() -> None:
    plan = plan_on(card("gfx1102", gib=2), catalog=real(), model="qwen3-coder-30b-a3b")
    assert plan.model.cpu_moe == 0
    assert plan.model.gpu_layers


def test_experts_need_room_in_the_machine_too() -> None:
    tight = {"memory_bytes": 4 * GIB}
    error = refused(
        card("gfx1101", gib=12), catalog=real(), model="qwen3-coder-30b-a3b", facts=tight
    )
    assert "do not hold the rest" in error.message


def test_a_model_that_fits_neither_card_nor_machine_is_refused_and_one_that_does_is_named() -> None:
    tight = {"memory_bytes": 4 * GIB}
    error = refused(card("gfx1102", gib=8), model="large", facts=tight)
    assert "8.0 GiB are free" in error.message
    assert "4.0 GiB" in error.message
    assert "--model small" in error.hint


def test_the_rest_of_a_model_needs_room_of_its_own_beside_integrated_graphics() -> None:
    apu = card("gfx1103", vram_bytes=GIB // 2, gtt_bytes=8 * GIB, integrated=True)
    room = {"memory_available_bytes": 14 * GIB}
    assert plan_on(apu, model="large", facts=room | {"memory_bytes": 16 * GIB}).model.gpu_layers
    refused(apu, model="large", facts=room | {"memory_bytes": 10 * GIB})


def test_a_large_download_is_told_with_its_licence_before_it_is_made() -> None:
    plan = plan_on(card("gfx1100", gib=24))
    told = next(each for each in plan.decisions if each.what == "download")
    assert told.value.endswith(" GB")
    assert "Apache-2.0" in told.because
    assert "unverified" in told.because
    small = plan_on(card("gfx1034", gib=2))
    assert "download" not in [each.what for each in small.decisions]


@pytest.fixture
def local(tmp_path: Path) -> LocalModelFacts:
    return read_header(write_shape(tmp_path / "local.gguf", SHAPES["qwen3"]))


def test_a_file_of_the_users_is_fitted_by_its_own_header(local: LocalModelFacts) -> None:
    facts = {"local_model": local}
    roomy = plan_on(card("gfx1100", gib=24), model=LOCAL, facts=facts)
    assert (roomy.model.context, roomy.model.gpu_layers) == (32768, None)
    tight = plan_on(card("gfx1102", gib=8), model=LOCAL, facts=facts)
    assert tight.model.gpu_layers is not None


def test_a_file_whose_shape_is_not_understood_is_served_as_it_is(local: LocalModelFacts) -> None:
    facts = {"local_model": structs.replace(local, shape=None)}
    plan = plan_on(card("gfx1102", gib=8), model=LOCAL, facts=facts)
    assert (plan.model.context, plan.model.gpu_layers) == (32768, None)


def test_what_the_store_has_under_another_name_is_served_under_that(local: LocalModelFacts) -> None:
    plan = plan_on(card("gfx1100", gib=24), model="mine", facts={"local_model": local})
    assert (plan.model.name, plan.model.path) == ("mine", local.path)
    assert "no model named" in refused(card("gfx1100"), model="mine").message


def test_the_file_of_a_model_that_only_the_store_knows_is_read_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(tmp_path, monkeypatch)
    at, sha256 = Layout(paths.model_store()), "a" * 64
    at.blobs.mkdir(parents=True)
    size = write_shape(at.blob(sha256), SHAPES["qwen2"]).stat().st_size
    file = StoredFile(name="mine.gguf", sha256=sha256, size=size)
    at.names.mkdir()
    at.write_record("mine", Record(files=(file,), source="a test"))
    found = run("plan", "--engine", "embedded", "--model", "mine", "--json")
    assert found.code == ExitCode.OK, found.err
    planned = found.json["model"]
    assert (planned["name"], planned["path"]) == ("mine", str(at.blob(sha256)))
    assert planned["trained_context"] == SHAPES["qwen2"].context
    assert run("plan", "--engine", "embedded", "--model", "yours").code == ExitCode.REFUSED


def test_all_parts_of_a_file_are_mounted_under_the_names_by_which_they_are_found() -> None:
    path = "/m/big-00001-of-00002.gguf"
    facts = {"local_model": LocalModelFacts(path=path, size=10, context_length=4096)}
    server = plan_on(card("gfx1100"), model=path, facts=facts).services[0]
    assert server.volumes[:2] == (
        "/m/big-00001-of-00002.gguf:/model-00001-of-00002.gguf:ro",
        "/m/big-00002-of-00002.gguf:/model-00002-of-00002.gguf:ro",
    )
    assert server.environment["MODEL_FILE"] == "/model-00001-of-00002.gguf"


# What a card gets of the catalogue as it is: the model, and the batch that makes room for it.
CARDS = {
    8: ("qwen3.5-9b", 256),
    12: ("qwen3.5-9b", 512),
    16: ("gpt-oss-20b", 256),
    20: ("glm-4.7-flash", 128),
    24: ("qwen3.6-35b-a3b", 512),
    32: ("seed-oss-36b", 256),
    48: ("qwen3-coder-next", 256),
}


@pytest.mark.parametrize("gib", CARDS)
def test_every_usual_card_gets_a_model_for_coding(gib: int) -> None:
    model = plan_on(card("gfx1100", gib=gib), catalog=real()).model
    assert (model.name, model.batch) == CARDS[gib]
    assert FULL <= model.context <= real().defaults.context_ceiling


def test_an_apu_gets_a_model_of_the_size_of_its_share_of_the_memory() -> None:
    apu = card("gfx1151", vram_bytes=GIB // 2, gtt_bytes=120 * GIB, integrated=True)
    roomy = {"memory_bytes": 128 * GIB, "memory_available_bytes": 122 * GIB}
    plan = plan_on(apu, catalog=real(), facts=roomy)
    assert (plan.model.name, plan.model.context) == ("qwen3.5-122b-a10b", 32768)


@pytest.mark.parametrize("gib", [4, 16, 48])
def test_no_model_that_fits_is_passed_over_unseen(
    gib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(cards=(gib * GIB,))
    found = largest_that_fits(real(), room, ())
    monkeypatch.setattr(default_model, "_least", lambda *_: 0)
    assert largest_that_fits(real(), room, ()) == found


def rank(best: DefaultModel | None) -> tuple[int, int, int]:
    """How good a choice is: the client's mode that it has room for, then the model, then it all."""
    if best is None:
        return (0, 0, 0)
    return (best.mode.context_floor, best.model.parameter_count, best.fitted.context)


@settings(max_examples=40, deadline=None)
@given(
    memory=st.integers(GIB, 160 * GIB),
    context=st.none() | st.sampled_from([2048, 8192, 16384, 65536]),
    name=st.sampled_from([None, *sorted(real().models)]),
    integrated=st.booleans(),
)
def test_no_plan_takes_more_than_is_free(
    memory: int, context: int | None, name: str | None, *, integrated: bool
) -> None:
    gpu = card("gfx1100", vram_bytes=memory, gtt_bytes=memory, integrated=integrated)
    wish: dict[str, Any] = {"model": name, "context": context}
    given = {key: value for key, value in wish.items() if value is not None}
    try:
        plan = plan_on(gpu, catalog=real(), **given)
    except PlanRefused as error:
        assert error.hint
        return
    if architecture_of(real().models[plan.model.name]) is not None:
        assert total(plan) <= memory
    assert plan.model.context == context or context is None


@settings(max_examples=40, deadline=None)
@given(memory=st.integers(GIB, 160 * GIB), more=st.integers(0, 16 * GIB))
def test_more_memory_never_gives_a_worse_choice(memory: int, more: int) -> None:
    smaller = largest_that_fits(real(), Room(cards=(memory,)), ())
    larger = largest_that_fits(real(), Room(cards=(memory + more,)), ())
    assert rank(larger)[:2] >= rank(smaller)[:2]
    if larger is not None and smaller is not None and larger.model == smaller.model:
        same_batch = larger.fitted.batch == smaller.fitted.batch
        assert not same_batch or larger.fitted.context >= smaller.fitted.context
