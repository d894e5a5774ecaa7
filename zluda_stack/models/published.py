"""The architecture of a model of the catalogue that is not here, from its published shape.

Pure: the shape becomes the header that the GGUF file would have, and that is read by the same
rules as a real one. Types of tensors are those of llama.cpp's own mixtures.
"""

from __future__ import annotations

from msgspec import structs

from zluda_stack.catalog.schema import LatentAttention, LinearAttention, Model, Shape
from zluda_stack.models import blueprint, mixture
from zluda_stack.models.architecture import Architecture, shape_of
from zluda_stack.models.gguf_reader import ARCHITECTURE, NAME, TEMPLATE, TOKENS, Header, Tensor

# Unsloth's names begin so where it chose the types itself; the mixture that the rest of the name
# says comes near.
_OWN_MIX = "UD-"
# A file's header is its vocabulary, to a few bytes: 36 to 40 bytes a token in the catalogue's.
_HEADER_PER_TOKEN = 40
# A file that is larger than this was mixed otherwise than llama.cpp does by itself: each tensor
# then counts for as much more, so that the weights are never less than the file has.
_AS_COMPUTED = 1.002


def architecture_of(model: Model) -> Architecture | None:
    """What reading the model's file would give; None where the catalogue cannot tell.

    That is so for a model without a shape, and for an architecture or a quantisation whose
    tensors are not computed here.
    """
    tensors = tensors_of(model)
    if model.shape is None or tensors is None:
        return None
    architecture = shape_of((_header(model, model.shape, tensors),))
    return structs.replace(architecture, parts=len(model.files))


def tensors_of(model: Model) -> tuple[Tensor, ...] | None:
    """All tensors of the model's file, those that llama.cpp does not load too; None: unknown."""
    tensors = plain_tensors_of(model)
    if tensors is None or model.size is None or model.shape is None:
        return tensors
    data = model.size - model.shape.vocabulary * _HEADER_PER_TOKEN
    factor = data / sum(tensor.bytes or 0 for tensor in tensors)
    if factor < _AS_COMPUTED:
        return tensors
    return tuple(structs.replace(t, bytes=round((t.bytes or 0) * factor)) for t in tensors)


def plain_tensors_of(model: Model) -> tuple[Tensor, ...] | None:
    """The tensors as llama.cpp itself quantises them, whatever the file's size; None: unknown."""
    shape = model.shape
    mix = model.quantisation.removeprefix(_OWN_MIX)
    if shape is None or not blueprint.known(shape.architecture) or not mixture.known(mix):
        return None
    return mixture.mixed(
        blueprint.tensors_of(shape, model.context_length),
        mix,
        shape.architecture,
        shape.layers + shape.predict_layers,
    )


def _header(model: Model, shape: Shape, tensors: tuple[Tensor, ...]) -> Header:
    texts = {ARCHITECTURE: shape.architecture, NAME: model.title}
    if model.template:
        texts[TEMPLATE] = model.template
    return Header(
        size=sum(tensor.bytes or 0 for tensor in tensors),
        values={**texts, **_keys(model, shape)},
        arrays=_arrays(shape),
        lengths={TOKENS: shape.vocabulary},
        tensors=tensors,
        tools=model.tools,
    )


def _keys(model: Model, shape: Shape) -> dict[str, int]:
    keys = {
        "context_length": model.context_length,
        "block_count": shape.layers + shape.predict_layers,
        "nextn_predict_layers": shape.predict_layers,
        "embedding_length": shape.embedding,
        "feed_forward_length": shape.wide,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head,
        "attention.value_length": shape.head,
        "attention.sliding_window": shape.window,
    }
    if shape.experts is not None:
        keys |= {
            "expert_count": shape.experts.count,
            "expert_used_count": shape.experts.used,
            "expert_feed_forward_length": shape.experts.wide,
        }
    if shape.latent is not None:
        keys |= _latent(shape.latent)
    if shape.linear is not None:
        keys |= _linear(shape.linear)
    if shape.full is not None:
        keys |= {
            "attention.key_length": shape.full.head,
            "attention.value_length": shape.full.head,
            "attention.key_length_swa": shape.head,
            "attention.value_length_swa": shape.head,
        }
    return {f"{shape.architecture}.{key}": number for key, number in keys.items()}


def _latent(latent: LatentAttention) -> dict[str, int]:
    if latent.merged:
        whole = latent.nope + latent.rope
        return {"attention.key_length": whole, "attention.value_length": latent.value}
    return {
        "attention.key_length": latent.rank + latent.rope,
        "attention.value_length": latent.rank,
        "attention.key_length_mla": latent.nope + latent.rope,
    }


def _linear(linear: LinearAttention) -> dict[str, int]:
    return {
        "full_attention_interval": linear.interval,
        "ssm.conv_kernel": linear.kernel,
        "ssm.state_size": linear.state,
        "ssm.group_count": linear.key_heads,
        "ssm.inner_size": linear.state * linear.value_heads,
    }


def _arrays(shape: Shape) -> dict[str, tuple[int | float, ...]]:
    """What differs from layer to layer in models with `full` attention in some."""
    if shape.full is None:
        return {}
    whole = [(number + 1) % shape.full.interval == 0 for number in range(shape.layers)]
    kv_heads = (shape.full.kv_heads if full else shape.kv_heads for full in whole)
    prefix = f"{shape.architecture}.attention"
    return {
        f"{prefix}.head_count_kv": tuple(kv_heads),
        f"{prefix}.sliding_window_pattern": tuple(int(not full) for full in whole),
    }
