"""The memory fit beside what llama.cpp itself allocates: never under, and never far over."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.unit.gguf_shapes import SHAPES, write_shape
from zluda_stack.models.architecture import Architecture, read_architecture
from zluda_stack.models.fit import (
    CELLS,
    COMPARED,
    Needs,
    Serving,
    fewest_experts_outside,
    largest_context,
    most_layers,
    needs,
)
from zluda_stack.models.on_host import weights

MIB = 2**20
MEASURED = Path(__file__).parents[1] / "data" / "fit-measured.yml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shapes")


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Architecture]:
    return {
        name: read_architecture(write_shape(folder / f"{name}.gguf", shape))
        for name, shape in SHAPES.items()
    }


def measured(part: str = "measured") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = yaml.safe_load(MEASURED.read_text())[part]
    return rows


def close(predicted: int, mebibytes: float, over: float = 0.05) -> None:
    """Not under, and over by that share or 32 MiB; the log rounds to a hundredth of a MiB."""
    assert predicted >= (mebibytes - 0.1) * MIB
    assert predicted - mebibytes * MIB <= max(32 * MIB, over * mebibytes * MIB)


@pytest.mark.parametrize(
    "row", measured(), ids=lambda row: f"{row['shape']}-{row['context']}-{row['batch']}"
)
def test_it_is_what_llama_cpp_allocated_on_a_card(
    models: dict[str, Architecture], row: dict[str, Any]
) -> None:
    asked = Serving(
        context=row["context"],
        slots=row["slots"],
        kv_type=row["keys"],
        batch=row["batch"],
        gpu_layers=row["layers"],
        cpu_moe=row.get("experts", 0),
    )
    found = needs(models[row["shape"]], asked)
    close(found.weights, row["model"])
    close(found.cache, row["kv"])
    close(found.states, row["states"])
    close(found.compute, row["compute"], over=0.05 if row["layers"] is None else 0.06)
    assert found.total >= row["loaded"] * MIB


@pytest.mark.parametrize("row", measured("limited"), ids=str)
def test_a_card_with_no_more_than_that_reads_a_prompt_that_fills_the_context(
    models: dict[str, Architecture], row: dict[str, Any]
) -> None:
    batch = row.get("batch", 512)
    experts = row.get("experts", 0)
    asked = Serving(
        context=row["context"], slots=1, kv_type=row["keys"], batch=batch, cpu_moe=experts
    )
    total = needs(models[row["shape"]], asked).total / MIB
    assert total > (row["too_little"] or 0)
    assert row["enough"] - 4 <= total <= 1.005 * row["enough"]


def test_nine_architectures_were_compared(models: dict[str, Architecture]) -> None:
    assert {row["shape"] for row in measured()} == set(SHAPES)
    assert {model.name for model in models.values()} == COMPARED


# With no_alloc nothing holds values, so the server falls over at its first token. Its log is
# written by another thread: the one that fell waits, and does not take the log along.
REPORT = """
import ctypes, signal, sys, xllamacpp as x
path, context, attention = sys.argv[1:]
libc = ctypes.CDLL(None)
libc.signal(signal.SIGSEGV, libc.pause)
p = x.CommonParams()
p.model.path, p.n_ctx, p.n_parallel, p.n_gpu_layers = path, int(context), 1, 0
p.flash_attn_type = getattr(x.llama_flash_attn_type, "LLAMA_FLASH_ATTN_TYPE_" + attention)
p.no_alloc, p.load_mode = True, x.llama_load_mode.LLAMA_LOAD_MODE_NONE
p.warmup = p.ui = p.fit_params = False
p.verbosity, p.hostnames = 4, [path + ".sock"]
x.Server(p)
signal.pause()
"""


@pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed"
)
@pytest.mark.parametrize(
    ("shape", "context", "attention"),
    [
        ("llama", 32768, "flash"),
        ("qwen3", 2048, "plain"),
        ("qwen3moe", 65536, "flash"),
        ("gemma3", 32768, "flash"),
        ("deepseek2", 8192, "plain"),
        ("starcoder2", 2048, "plain"),
        ("gpt-oss", 32768, "flash"),
        ("qwen35", 32768, "flash"),
    ],
)
def test_it_is_what_the_embedded_llama_cpp_would_allocate(
    folder: Path, models: dict[str, Architecture], shape: str, context: int, attention: Any
) -> None:
    """llama.cpp plans its buffers without taking them (no_alloc), on the CPU, and says so."""
    wanted = {"flash": "ENABLED", "plain": "DISABLED"}[attention]
    log = reported(folder / f"{shape}.gguf", str(context), wanted)
    found = needs(models[shape], Serving(context=context, slots=1, attention=attention))
    close(found.cache, sum(map(float, re.findall(r"kv_cache: size = *([\d.]+) MiB", log))))
    close(found.states, sum(map(float, re.findall(r"recurrent: size = *([\d.]+) MiB", log))))
    close(found.compute, float(re.findall(r"compute buffer size = *([\d.]+) MiB", log)[-1]))


def reported(path: Path, *asked: str) -> str:
    """What llama.cpp says of its buffers."""
    Path(f"{path}.sock").unlink(missing_ok=True)
    log = ""
    with subprocess.Popen(
        ("timeout", "120", sys.executable, "-c", REPORT, str(path), *asked),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        assert server.stdout is not None
        for line in server.stdout:
            log += line
            if "reserve took" in line:  # the line after them
                server.terminate()
                return log
    pytest.fail(f"no buffers in its log: {log[-500:]}")


def test_quantised_keys_and_a_shorter_context_take_less(models: dict[str, Architecture]) -> None:
    full = Serving(context=32768)
    model = models["llama"]
    half = needs(model, structs.replace(full, context=16384))
    quantised = needs(model, structs.replace(full, kv_type="q8_0"))
    assert half.cache * 2 == needs(model, full).cache
    # Without FlashAttention only the keys can be quantised: 34 bytes for 32 values and not 64.
    assert quantised.cache / needs(model, full).cache == pytest.approx((34 / 64 + 1) / 2)


def test_slots_cost_windows_and_states_but_not_the_shared_context(
    models: dict[str, Architecture],
) -> None:
    def cache(shape: str, slots: int) -> Needs:
        return needs(models[shape], Serving(context=32768, slots=slots))

    assert cache("llama", 1).cache == cache("llama", 4).cache
    assert cache("gemma3", 1).cache < cache("gemma3", 4).cache
    assert cache("qwen35", 4).states == 4 * cache("qwen35", 1).states


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("gigabytes", [8, 16, 24, 48])
def test_the_largest_context_fits_and_the_next_does_not(
    models: dict[str, Architecture], shape: str, gigabytes: int
) -> None:
    model, memory, asked = models[shape], gigabytes * 2**30, Serving(context=4096)
    context = largest_context(model, asked, memory)
    if context is None:
        assert needs(model, structs.replace(asked, context=CELLS)).total > memory
        return
    assert needs(model, structs.replace(asked, context=context)).total <= memory
    more = structs.replace(asked, context=context + CELLS)
    assert context == model.context_length or needs(model, more).total > memory


def test_layers_that_do_not_fit_stay_on_the_host(models: dict[str, Architecture]) -> None:
    model, memory = models["qwen3"], 6 * 2**30
    count = most_layers(model, Serving(context=4096), memory)
    assert count is not None
    assert 0 < count < len(model.layers)
    partial = needs(model, Serving(context=4096, gpu_layers=count))
    whole = needs(model, Serving(context=4096))
    assert partial.total <= memory < whole.total
    assert partial.host > whole.host


WITH_EXPERTS = ("qwen3moe", "gpt-oss", "deepseek2")


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from(WITH_EXPERTS),
    memory=st.integers(2 * 2**30, 24 * 2**30),
    context=st.sampled_from([4096, 16384, 32768]),
    batch=st.sampled_from([512, 256, 128]),
)
def test_as_few_experts_are_left_out_as_will_do(
    models: dict[str, Architecture], shape: str, memory: int, context: int, batch: int
) -> None:
    model, asked = models[shape], Serving(context=context, batch=batch)

    def total(count: int) -> int:
        return needs(model, structs.replace(asked, cpu_moe=count)).total

    found = fewest_experts_outside(model, asked, memory)
    if found is None:
        assert total(len(model.layers)) > memory
        return
    assert total(found) <= memory
    assert found == 1 or total(found - 1) > memory


@pytest.mark.parametrize("shape", WITH_EXPERTS)
def test_experts_leave_the_card_for_the_host_and_nothing_else_does(
    models: dict[str, Architecture], shape: str
) -> None:
    model = models[shape]
    whole, outside = (
        needs(model, Serving(context=4096, cpu_moe=count)) for count in (0, len(model.layers))
    )
    experts = sum(one.bytes or 0 for one in model.tensors if "_exps." in one.name)
    assert whole.weights - outside.weights == outside.host - whole.host == experts
    assert whole.cache == outside.cache


def test_a_model_without_experts_leaves_none_out(models: dict[str, Architecture]) -> None:
    assert fewest_experts_outside(models["llama"], Serving(context=4096), 4 * 2**30) is None


@pytest.mark.parametrize(
    ("name", "outside"),
    [
        ("blk.1.ffn_up_exps.weight", True),
        ("blk.1.ffn_gate_up_exps.weight", True),
        ("blk.1.ffn_down_exps.bias", True),
        ("blk.1.ffn_gate_chexps.weight", True),
        ("blk.1.ffn_up_shexp.weight", False),  # computed for every token
        ("blk.1.ffn_gate_inp.weight", False),  # chooses the experts
        ("blk.1.attn_q.weight", False),
        ("blk.3.ffn_up_exps.weight", False),  # of a layer that is not left out
    ],
)
def test_what_is_left_out_is_what_llama_cpps_expression_finds(
    models: dict[str, Architecture], name: str, *, outside: bool
) -> None:
    tensor = structs.replace(models["qwen3moe"].tensors[0], name=name)
    model = structs.replace(models["qwen3moe"], tensors=(tensor,))
    card, host = weights(model, 0, 3)
    assert (host > 0, card > 0) == (outside, not outside)


def test_a_card_without_room_for_one_layer_gets_none(models: dict[str, Architecture]) -> None:
    assert most_layers(models["qwen3"], Serving(context=4096), 2**30) is None
