"""GGUF files of nine architectures, as large as real models, without data: a header and a hole.

They are sparse, so one of 20 GB takes a few kilobytes of disk, and llama.cpp loads them: it finds
zeros. The sizes are like those of models that people run, and not claimed to be any one model's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Quantisation
from msgspec import Struct

Tensor = tuple[str, tuple[int, ...]]


class Shape(Struct, frozen=True, kw_only=True):
    """The numbers that a model's tensors and caches follow from."""

    architecture: str
    layers: int
    embedding: int
    feed_forward: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int
    context: int = 131072
    biases: bool = False
    tied: bool = False
    window: int = 0
    experts: int = 0
    experts_used: int = 0
    expert_feed_forward: int = 0
    quantisation: Quantisation = Quantisation.Q4_K


SHAPES = {
    "llama": Shape(
        architecture="llama",
        layers=32,
        embedding=4096,
        feed_forward=14336,
        heads=32,
        kv_heads=8,
        head=128,
        vocabulary=128256,
    ),
    "qwen2": Shape(
        architecture="qwen2",
        layers=28,
        embedding=3584,
        feed_forward=18944,
        heads=28,
        kv_heads=4,
        head=128,
        vocabulary=152064,
        biases=True,
    ),
    "qwen3": Shape(
        architecture="qwen3",
        layers=40,
        embedding=5120,
        feed_forward=17408,
        heads=40,
        kv_heads=8,
        head=128,
        vocabulary=151936,
        context=40960,
    ),
    "qwen3moe": Shape(
        architecture="qwen3moe",
        layers=48,
        embedding=2048,
        feed_forward=6144,
        heads=32,
        kv_heads=4,
        head=128,
        vocabulary=151936,
        context=262144,
        experts=128,
        experts_used=8,
        expert_feed_forward=768,
    ),
    "gemma3": Shape(
        architecture="gemma3",
        layers=48,
        embedding=3840,
        feed_forward=15360,
        heads=16,
        kv_heads=8,
        head=256,
        vocabulary=262144,
        window=1024,
        tied=True,
        quantisation=Quantisation.Q4_0,
    ),
    "deepseek2": Shape(
        architecture="deepseek2",
        layers=27,
        embedding=2048,
        feed_forward=10944,
        heads=16,
        kv_heads=1,
        head=192,
        vocabulary=102400,
        context=163840,
        experts=64,
        experts_used=6,
        expert_feed_forward=1408,
        quantisation=Quantisation.Q4_0,
    ),
    "starcoder2": Shape(
        architecture="starcoder2",
        layers=32,
        embedding=4608,
        feed_forward=18432,
        heads=36,
        kv_heads=4,
        head=128,
        vocabulary=49152,
        context=16384,
        biases=True,
    ),
    "gpt-oss": Shape(
        architecture="gpt-oss",
        layers=24,
        embedding=2880,
        feed_forward=2880,
        heads=64,
        kv_heads=8,
        head=64,
        vocabulary=201088,
        biases=True,
        window=128,
        experts=32,
        experts_used=4,
        expert_feed_forward=2880,
        quantisation=Quantisation.Q8_0,
    ),
    "qwen35": Shape(
        architecture="qwen35",
        layers=32,
        embedding=4096,
        feed_forward=12288,
        heads=16,
        kv_heads=4,
        head=256,
        vocabulary=248320,
        context=262144,
    ),
}
_LORA, _ROPE, _NOPE, _VALUE = 512, 64, 128, 128  # deepseek2's attention
_STATE, _GROUPS, _STEPS, _KERNEL = 128, 16, 32, 4  # qwen35's linear attention


def write_shape(path: Path, shape: Shape) -> Path:
    """Write the model's header to `path` and make the file as long as its tensors need."""
    writer = gguf.GGUFWriter(path, shape.architecture)
    _write_keys(writer, shape)
    for name, dimensions in tensors(shape):
        _add(writer, shape, name, dimensions)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    size = sum(_padded(info.nbytes) for info in writer.tensors[0].values())
    os.truncate(path, _padded(path.stat().st_size) + size)
    return path


def _padded(count: int) -> int:
    return -(-count // 32) * 32


def _add(writer: gguf.GGUFWriter, shape: Shape, name: str, dimensions: tuple[int, ...]) -> None:
    kind = shape.quantisation
    if len(dimensions) == 1 or "ssm_conv1d" in name or "ffn_gate_inp" in name or "bias" in name:
        kind = Quantisation.F32
    elif name == "output.weight":
        kind = Quantisation.Q6_K if dimensions[0] % 256 == 0 else Quantisation.Q8_0
    elif dimensions[0] % 256:
        kind = Quantisation.Q8_0 if dimensions[0] % 32 == 0 else Quantisation.F16
    block, size = gguf.GGML_QUANT_SIZES[kind]
    count = 1
    for dimension in dimensions:
        count *= dimension
    bytes_shape = (*reversed(dimensions[1:]), dimensions[0] // block * size)
    writer.add_tensor_info(
        name, bytes_shape, np.dtype(np.uint8), count // block * size, raw_dtype=kind
    )


def _write_keys(writer: gguf.GGUFWriter, shape: Shape) -> None:
    mla = shape.architecture == "deepseek2"
    writer.add_name(f"a model of the shape {shape.architecture}")
    writer.add_context_length(shape.context)
    writer.add_block_count(shape.layers)
    writer.add_embedding_length(shape.embedding)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(_LORA + _ROPE if mla else shape.head)
    writer.add_value_length(_LORA if mla else shape.head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_layer_norm_eps(1e-5)
    writer.add_rope_freq_base(1e6)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_tokenizer_model("no_vocab")
    if shape.window:
        writer.add_sliding_window(shape.window)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.experts_used)
        writer.add_expert_feed_forward_length(shape.expert_feed_forward)
    if mla:
        writer.add_kv_lora_rank(_LORA)
        writer.add_key_length_mla(shape.head)
        writer.add_value_length_mla(_VALUE)
        writer.add_rope_dimension_count(_ROPE)
        writer.add_leading_dense_block_count(1)
        writer.add_expert_shared_count(2)
        writer.add_expert_weights_scale(1.0)
    if shape.architecture == "qwen35":
        writer.add_rope_dimension_count(64)
        writer.add_rope_dimension_sections([11, 11, 10, 0])
        writer.add_ssm_conv_kernel(_KERNEL)
        writer.add_ssm_inner_size(_STATE * _STEPS)
        writer.add_ssm_state_size(_STATE)
        writer.add_ssm_time_step_rank(_STEPS)
        writer.add_ssm_group_count(_GROUPS)


def tensors(shape: Shape) -> Iterator[Tensor]:
    """The names of a model's tensors and their dimensions, fastest first."""
    yield "token_embd.weight", (shape.embedding, shape.vocabulary)
    for layer in range(shape.layers):
        for name, dimensions in _layer(shape, layer):
            yield f"blk.{layer}.{name}", dimensions
    yield "output_norm.weight", (shape.embedding,)
    if shape.architecture == "starcoder2":
        yield "output_norm.bias", (shape.embedding,)
    if not shape.tied:
        yield "output.weight", (shape.embedding, shape.vocabulary)


def _layer(shape: Shape, layer: int) -> Iterator[Tensor]:
    yield "attn_norm.weight", (shape.embedding,)
    yield from _attention(shape, layer)
    if shape.architecture in {"gpt-oss", "qwen35"}:
        yield "post_attention_norm.weight", (shape.embedding,)
    else:
        yield "ffn_norm.weight", (shape.embedding,)
    if shape.architecture == "gemma3":
        yield "post_attention_norm.weight", (shape.embedding,)
        yield "post_ffw_norm.weight", (shape.embedding,)
    if shape.architecture == "starcoder2":
        yield "attn_norm.bias", (shape.embedding,)
        yield "ffn_norm.bias", (shape.embedding,)
    dense = not shape.experts or (shape.architecture == "deepseek2" and layer == 0)
    yield from (_dense(shape) if dense else _experts(shape))


def _attention(shape: Shape, layer: int) -> Iterator[Tensor]:
    if shape.architecture == "deepseek2":
        yield from _latent_attention(shape)
        return
    if shape.architecture == "qwen35" and (layer + 1) % 4:
        yield from _linear_attention(shape)
        return
    gated = 2 if shape.architecture == "qwen35" else 1
    query, key = shape.heads * shape.head, shape.kv_heads * shape.head
    yield "attn_q.weight", (shape.embedding, query * gated)
    yield "attn_k.weight", (shape.embedding, key)
    yield "attn_v.weight", (shape.embedding, key)
    yield "attn_output.weight", (query, shape.embedding)
    if shape.biases:
        yield "attn_q.bias", (query,)
        yield "attn_k.bias", (key,)
        yield "attn_v.bias", (key,)
    if shape.architecture in {"starcoder2", "gpt-oss"}:
        yield "attn_output.bias", (shape.embedding,)
    if shape.architecture == "gpt-oss":
        yield "attn_sinks.weight", (shape.heads,)
    if shape.architecture in {"qwen3", "qwen3moe", "gemma3", "qwen35"}:
        yield "attn_q_norm.weight", (shape.head,)
        yield "attn_k_norm.weight", (shape.head,)


def _latent_attention(shape: Shape) -> Iterator[Tensor]:
    yield "attn_q.weight", (shape.embedding, shape.heads * shape.head)
    yield "attn_kv_a_mqa.weight", (shape.embedding, _LORA + _ROPE)
    yield "attn_kv_a_norm.weight", (_LORA,)
    yield "attn_k_b.weight", (_NOPE, _LORA, shape.heads)
    yield "attn_v_b.weight", (_LORA, _VALUE, shape.heads)
    yield "attn_output.weight", (shape.heads * _VALUE, shape.embedding)


def _linear_attention(shape: Shape) -> Iterator[Tensor]:
    keys, values = _STATE * _GROUPS, _STATE * _STEPS
    yield "attn_qkv.weight", (shape.embedding, 2 * keys + values)
    yield "attn_gate.weight", (shape.embedding, values)
    yield "ssm_conv1d.weight", (_KERNEL, 2 * keys + values)
    yield "ssm_dt.bias", (_STEPS,)
    yield "ssm_a", (_STEPS,)
    yield "ssm_beta.weight", (shape.embedding, _STEPS)
    yield "ssm_alpha.weight", (shape.embedding, _STEPS)
    yield "ssm_norm.weight", (_STATE,)
    yield "ssm_out.weight", (values, shape.embedding)


def _dense(shape: Shape) -> Iterator[Tensor]:
    yield "ffn_up.weight", (shape.embedding, shape.feed_forward)
    yield "ffn_down.weight", (shape.feed_forward, shape.embedding)
    if shape.architecture != "starcoder2":
        yield "ffn_gate.weight", (shape.embedding, shape.feed_forward)
        return
    yield "ffn_up.bias", (shape.feed_forward,)
    yield "ffn_down.bias", (shape.embedding,)


def _experts(shape: Shape) -> Iterator[Tensor]:
    width, count = shape.expert_feed_forward, shape.experts
    yield "ffn_gate_inp.weight", (shape.embedding, count)
    for part in ("gate", "up"):
        yield f"ffn_{part}_exps.weight", (shape.embedding, width, count)
        if shape.architecture == "deepseek2":
            yield f"ffn_{part}_shexp.weight", (shape.embedding, 2 * width)
        if shape.biases:
            yield f"ffn_{part}_exps.bias", (width, count)
    yield "ffn_down_exps.weight", (width, shape.embedding, count)
    if shape.architecture == "deepseek2":
        yield "ffn_down_shexp.weight", (2 * width, shape.embedding)
    if shape.biases:
        yield "ffn_down_exps.bias", (shape.embedding, count)
        yield "ffn_gate_inp.bias", (count,)
