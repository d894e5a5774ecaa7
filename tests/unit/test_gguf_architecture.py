"""What is read of a model's shape, beside the gguf package, and of files in parts or damaged."""

from __future__ import annotations

import resource
import struct
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.gguf_shapes import SHAPES, write_shape
from zluda_stack.models.architecture import read_architecture
from zluda_stack.models.fit import Serving, needs
from zluda_stack.models.gguf_reader import BadGguf, read
from zluda_stack.models.gguf_types import TENSOR_TYPES

MORE = 64 * 2**20


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("shapes")
    return {name: write_shape(folder / f"{name}.gguf", shape) for name, shape in SHAPES.items()}


def test_tensor_types_are_those_of_the_gguf_package() -> None:
    known = {number: (kind.name, kind.block, kind.size) for number, kind in TENSOR_TYPES.items()}
    theirs = {
        int(kind): (kind.name, *gguf.GGML_QUANT_SIZES[kind])
        for kind in gguf.GGMLQuantizationType
        if kind in gguf.GGML_QUANT_SIZES
    }
    assert known.items() >= theirs.items()


def test_values_arrays_and_tensors_are_those_of_the_gguf_package(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_head_count_kv([4, 8])
    writer.add_rope_freq_base(1e6)
    writer.add_token_list([f"token {n}" for n in range(99)])
    shape = np.zeros((3, 64), dtype=np.float16)
    writer.add_tensor("blk.0.attn_k.weight", shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ours, theirs = read(path), gguf.GGUFReader(path)
    for key in ("llama.block_count", "llama.rope.freq_base"):
        assert ours.values[key] == theirs.fields[key].contents()
    kv_heads = theirs.fields["llama.attention.head_count_kv"].contents()
    assert list(ours.arrays["llama.attention.head_count_kv"]) == kv_heads
    assert ours.lengths["tokenizer.ggml.tokens"] == 99
    (tensor,) = theirs.tensors
    assert [(t.name, t.shape, t.type, t.bytes) for t in ours.tensors] == [
        (tensor.name, tuple(tensor.shape), tensor.tensor_type.name, tensor.n_bytes)
    ]


def test_a_plain_model_has_grouped_heads_in_every_layer(shapes: dict[str, Path]) -> None:
    model = read_architecture(shapes["llama"])
    assert (model.name, len(model.layers), model.embedding) == ("llama", 32, 4096)
    assert (model.vocabulary, model.context_length) == (128256, 131072)
    assert {(layer.key, layer.value, layer.window) for layer in model.layers} == {(1024, 1024, 0)}
    assert next(iter(model.quantisations)) == "Q4_K"
    assert sum(model.quantisations.values()) == pytest.approx(shapes["llama"].stat().st_size, 1e-4)


def test_windows_latent_attention_experts_and_states_are_seen(shapes: dict[str, Path]) -> None:
    gemma = read_architecture(shapes["gemma3"])
    assert [layer.window for layer in gemma.layers[:6]] == [1024] * 5 + [0]
    deepseek = read_architecture(shapes["deepseek2"])
    assert {(layer.key, layer.value) for layer in deepseek.layers} == {(576, 0)}
    assert (deepseek.experts, deepseek.experts_used, deepseek.expert_wide) == (64, 6, 1408)
    qwen = read_architecture(shapes["qwen35"])
    assert [bool(layer.key) for layer in qwen.layers[:4]] == [False, False, False, True]
    assert [bool(layer.recurrent) for layer in qwen.layers[:4]] == [True, True, True, False]


def test_a_window_that_llama_cpp_does_not_use_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write(path, {"llama.attention.sliding_window": 4096})
    assert {layer.window for layer in read_architecture(path).layers} == {0}


@pytest.mark.parametrize(
    ("template", "tools"),
    [
        ("{% for tool in tools %}{{ tool }}{% endfor %}", True),
        ("x" * 9000 + "{{ tools | tojson }}", True),
        ("{{ messages }}", False),
        ("{{ toolset }}", False),
    ],
)
def test_tool_support_is_told_from_the_whole_template(
    tmp_path: Path, template: str, *, tools: bool
) -> None:
    path = tmp_path / "model.gguf"
    write(path, {"tokenizer.chat_template": template})
    model = read_architecture(path)
    assert (model.template, model.tools) == (True, tools)


def test_the_parts_of_a_split_model_are_one_model(tmp_path: Path) -> None:
    first, second = (tmp_path / f"m-0000{n}-of-00002.gguf" for n in (1, 2))
    write(first, {"split.count": 2, "split.no": 0}, tensor="token_embd.weight")
    write(second, {"split.count": 2, "split.no": 1}, tensor="output.weight")
    model = read_architecture(first)
    assert model.parts == 2
    assert [tensor.name for tensor in model.tensors] == ["token_embd.weight", "output.weight"]
    with pytest.raises(BadGguf, match="name the first"):
        read_architecture(second)
    second.unlink()
    with pytest.raises(FileNotFoundError):
        read_architecture(first)


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({"llama.block_count": 0}, "block_count"),
        ({"llama.block_count": 100_000}, "layers"),
        ({"llama.attention.indexer.head_count": 4}, "not computed"),
        ({"split.count": 2**31 - 1}, "parts"),
    ],
)
def test_a_model_that_cannot_be_computed_is_refused(
    tmp_path: Path, keys: dict[str, int], word: str
) -> None:
    path = tmp_path / "m-00001-of-2147483647.gguf"
    write(path, keys)
    with pytest.raises(BadGguf, match=word):
        read_architecture(path)


def test_a_tensor_that_no_machine_could_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    info = struct.pack("<Q", 1) + b"t" + struct.pack("<I4QIQ", 4, *[2**60] * 4, 0, 0)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + info + bytes(64))
    with pytest.raises(BadGguf, match="no machine"):
        read(path)


def write(path: Path, keys: Mapping[str, int | str], *, tensor: str = "token_embd.weight") -> None:
    """A model of two layers with one tensor, and `keys` beside or instead of its own."""
    writer = gguf.GGUFWriter(path, "llama")
    own: dict[str, int | str] = {"llama.block_count": 2, "llama.embedding_length": 64}
    for key, value in {**own, "llama.attention.head_count": 4, **keys}.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_uint32(key, value)
    writer.add_tensor(tensor, np.zeros((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_model_is_computed_or_refused_and_takes_no_memory(
    shapes: dict[str, Path], tmp_path: Path, data: st.DataObject
) -> None:
    with shapes["qwen35"].open("rb") as file:
        raw = bytearray(file.read(40_000))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(4, data.draw(st.sampled_from([100, 2000, 39_000]))))
        new = data.draw(st.one_of(st.binary(min_size=1, max_size=8), st.just(b"\xff" * 8)))
        raw[at : at + len(new)] = new
    path = tmp_path / "damaged.gguf"
    path.write_bytes(raw)
    with path.open("r+b") as file:
        file.truncate(shapes["qwen35"].stat().st_size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        assert needs(read_architecture(path), Serving(context=32768)).total > 0
    except BadGguf as error:
        assert str(error)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MORE // 1024
