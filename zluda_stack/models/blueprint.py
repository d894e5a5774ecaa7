"""The tensors of a model of a given shape, as llama.cpp's converter names them.

Pure: from a published shape to names and dimensions, the fastest first. The lists are those of
llama.cpp b11434 (load_arch_tensors in src/models/*.cpp, read 2026-11-30). Left out is what only
some models of an architecture have and what takes a few kilobytes: factors of the rotary
embedding, and biases of the routing in deepseek2.
"""

from __future__ import annotations

from collections.abc import Iterator

from zluda_stack.catalog.schema import (
    Experts,
    FullAttention,
    LatentAttention,
    LinearAttention,
    Shape,
)

Blank = tuple[str, tuple[int, ...]]

_KNOWN = frozenset(
    (
        "deepseek2",
        "gemma3",
        "gemma4",
        "glm4moe",
        "gpt-oss",
        "granite",
        "llama",
        "mistral3",
        "phi3",
        "qwen2",
        "qwen3",
        "qwen35",
        "qwen35moe",
        "qwen3moe",
        "qwen3next",
        "seed_oss",
        "smollm3",
        "starcoder",
        "starcoder2",
    )
)
_QUERY_BIASES = {"glm4moe", "gpt-oss", "qwen2", "seed_oss", "starcoder2"}
_HEAD_NORMS = {
    "gemma3",
    "gemma4",
    "qwen3",
    "qwen35",
    "qwen35moe",
    "qwen3moe",
    "qwen3next",
}
_GEMMAS = {"gemma3", "gemma4"}
# Layers that are normalised between attention and feed-forward under another name.
_POST_NORMS = {"glm4moe", "gpt-oss", "qwen35", "qwen35moe", "qwen3next", "seed_oss"}
_FUSED = {"phi3", "starcoder"}  # one tensor for queries, keys and values
_STARCODERS = {"starcoder", "starcoder2"}


def known(architecture: str) -> bool:
    """Whether the tensors of `architecture` can be listed."""
    return architecture in _KNOWN


def tensors_of(shape: Shape, context_length: int) -> Iterator[Blank]:
    """Every tensor of a model of a `known` architecture.

    `context_length` is what it was trained for, in tokens.
    """
    yield "token_embd.weight", (shape.embedding, shape.vocabulary)
    if shape.architecture == "starcoder":
        yield "position_embd.weight", (shape.embedding, context_length)
    yield from _norm(shape, "output_norm", shape.embedding)
    if not shape.tied:
        yield "output.weight", (shape.embedding, shape.vocabulary)
    for number in range(shape.layers + shape.predict_layers):
        for name, dimensions in _layer(shape, number):
            yield f"blk.{number}.{name}", dimensions


def _norm(shape: Shape, name: str, width: int) -> Iterator[Blank]:
    yield f"{name}.weight", (width,)
    if shape.architecture in _STARCODERS:
        yield f"{name}.bias", (width,)


def _layer(shape: Shape, number: int) -> Iterator[Blank]:
    yield from _norm(shape, "attn_norm", shape.embedding)
    if shape.latent is not None:
        yield from _latent_attention(shape, shape.latent)
    elif shape.linear is not None and not _is_full(shape, shape.linear, number):
        yield from _linear_attention(shape, shape.linear)
    elif shape.full is not None and (number + 1) % shape.full.interval == 0:
        yield from _full_attention(shape, shape.full)
    else:
        yield from _attention(shape)
    if shape.architecture in _POST_NORMS:
        yield "post_attention_norm.weight", (shape.embedding,)
    else:
        yield from _norm(shape, "ffn_norm", shape.embedding)
    if shape.architecture in _GEMMAS:
        yield "post_attention_norm.weight", (shape.embedding,)
        yield "post_ffw_norm.weight", (shape.embedding,)
    mixed = shape.experts is not None and number >= shape.experts.dense_layers
    if shape.experts is not None and mixed:
        yield from _mixture(shape, shape.experts)
    if not mixed or shape.architecture == "gemma4":
        yield from _feed_forward(shape)
    if shape.architecture == "gemma4":
        yield from _scales(shape)
    if number >= shape.layers:
        yield from _prediction(shape)


def _is_full(shape: Shape, linear: LinearAttention, number: int) -> bool:
    return (number + 1) % linear.interval == 0 or number >= shape.layers


def _attention(shape: Shape) -> Iterator[Blank]:
    # A gate as wide as the queries is in the same tensor.
    gated = 2 if shape.linear is not None else 1
    query, key = shape.heads * shape.head, shape.kv_heads * shape.head
    inner = shape.architecture in _STARCODERS or shape.biases
    if shape.architecture in _FUSED:
        names = {"attn_qkv": query + 2 * key}
    else:
        names = {"attn_q": query * gated, "attn_k": key, "attn_v": key}
    for name, width in names.items():
        yield f"{name}.weight", (shape.embedding, width)
        if inner or shape.architecture in _QUERY_BIASES:
            yield f"{name}.bias", (width,)
    yield "attn_output.weight", (query, shape.embedding)
    if inner or shape.architecture == "gpt-oss":
        yield "attn_output.bias", (shape.embedding,)
    if shape.architecture == "gpt-oss":
        yield "attn_sinks.weight", (shape.heads,)
    if shape.architecture in _HEAD_NORMS:
        yield "attn_q_norm.weight", (shape.head,)
        yield "attn_k_norm.weight", (shape.head,)


def _full_attention(shape: Shape, full: FullAttention) -> Iterator[Blank]:
    query = shape.heads * full.head
    yield "attn_q.weight", (shape.embedding, query)
    yield "attn_k.weight", (shape.embedding, full.kv_heads * full.head)
    yield "attn_output.weight", (query, shape.embedding)
    yield "attn_q_norm.weight", (full.head,)
    yield "attn_k_norm.weight", (full.head,)


def _latent_attention(shape: Shape, latent: LatentAttention) -> Iterator[Blank]:
    query = shape.heads * (latent.nope + latent.rope)
    if latent.query_rank:
        yield "attn_q_a.weight", (shape.embedding, latent.query_rank)
        yield "attn_q_a_norm.weight", (latent.query_rank,)
        yield "attn_q_b.weight", (latent.query_rank, query)
    else:
        yield "attn_q.weight", (shape.embedding, query)
    yield "attn_kv_a_mqa.weight", (shape.embedding, latent.rank + latent.rope)
    yield "attn_kv_a_norm.weight", (latent.rank,)
    if latent.merged:
        yield "attn_kv_b.weight", (latent.rank, shape.heads * (latent.nope + latent.value))
    else:
        yield "attn_k_b.weight", (latent.nope, latent.rank, shape.heads)
        yield "attn_v_b.weight", (latent.rank, latent.value, shape.heads)
    yield "attn_output.weight", (shape.heads * latent.value, shape.embedding)


def _linear_attention(shape: Shape, linear: LinearAttention) -> Iterator[Blank]:
    keys, values = linear.state * linear.key_heads, linear.state * linear.value_heads
    yield "attn_qkv.weight", (shape.embedding, 2 * keys + values)
    yield "attn_gate.weight", (shape.embedding, values)
    yield "ssm_conv1d.weight", (linear.kernel, 2 * keys + values)
    yield "ssm_dt.bias", (linear.value_heads,)
    yield "ssm_a", (linear.value_heads,)
    if shape.architecture == "qwen3next":
        yield "ssm_ba.weight", (shape.embedding, 2 * linear.value_heads)
    else:
        yield "ssm_beta.weight", (shape.embedding, linear.value_heads)
        yield "ssm_alpha.weight", (shape.embedding, linear.value_heads)
    yield "ssm_norm.weight", (linear.state,)
    yield "ssm_out.weight", (values, shape.embedding)


def _feed_forward(shape: Shape) -> Iterator[Blank]:
    biased = shape.biases or shape.architecture in _STARCODERS
    if shape.architecture == "phi3":  # gate and up in one
        names = {"ffn_up": 2 * shape.wide}
    elif shape.architecture in _STARCODERS:
        names = {"ffn_up": shape.wide}
    else:
        names = {"ffn_gate": shape.wide, "ffn_up": shape.wide}
    for name, width in names.items():
        yield f"{name}.weight", (shape.embedding, width)
        if biased:
            yield f"{name}.bias", (width,)
    yield "ffn_down.weight", (shape.wide, shape.embedding)
    if biased:
        yield "ffn_down.bias", (shape.embedding,)


def _mixture(shape: Shape, experts: Experts) -> Iterator[Blank]:
    biased = shape.architecture == "gpt-oss"
    yield "ffn_gate_inp.weight", (shape.embedding, experts.count)
    if biased:
        yield "ffn_gate_inp.bias", (experts.count,)
    if shape.architecture == "glm4moe":
        yield "exp_probs_b.bias", (experts.count,)
    if shape.architecture == "gemma4":  # gate and up in one
        names = {"ffn_gate_up_exps": 2 * experts.wide}
    else:
        names = {"ffn_gate_exps": experts.wide, "ffn_up_exps": experts.wide}
    for name, width in names.items():
        yield f"{name}.weight", (shape.embedding, width, experts.count)
        if biased:
            yield f"{name}.bias", (width, experts.count)
    yield "ffn_down_exps.weight", (experts.wide, shape.embedding, experts.count)
    if biased:
        yield "ffn_down_exps.bias", (shape.embedding, experts.count)
    if experts.shared:
        yield from _shared_expert(shape, experts.shared)


def _shared_expert(shape: Shape, width: int) -> Iterator[Blank]:
    if shape.linear is not None:
        yield "ffn_gate_inp_shexp.weight", (shape.embedding,)
    yield "ffn_gate_shexp.weight", (shape.embedding, width)
    yield "ffn_up_shexp.weight", (shape.embedding, width)
    yield "ffn_down_shexp.weight", (width, shape.embedding)


def _scales(shape: Shape) -> Iterator[Blank]:
    """The factors and norms of a layer of Gemma 4."""
    yield "layer_output_scale.weight", (1,)
    if shape.experts is None:
        return
    yield "ffn_gate_inp.scale", (shape.embedding,)
    yield "ffn_down_exps.scale", (shape.experts.count,)
    for name in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
        yield f"{name}.weight", (shape.embedding,)


def _prediction(shape: Shape) -> Iterator[Blank]:
    """What a block for multi-token prediction has beside an ordinary layer."""
    yield "nextn.eh_proj.weight", (2 * shape.embedding, shape.embedding)
    yield "nextn.enorm.weight", (shape.embedding,)
    yield "nextn.hnorm.weight", (shape.embedding,)
    yield "nextn.shared_head_norm.weight", (shape.embedding,)
