"""The architecture of a model of the catalogue that is not here, from its published shape.

Pure: the shape becomes the header that the GGUF file would have, and that is read by the same
rules as a real one. Types of tensors are those of llama.cpp's own mixtures.
"""

from __future__ import annotations

from msgspec import structs

from zluda_stack.catalog.schema import Model, Shape
from zluda_stack.models import blueprint, mixture
from zluda_stack.models.architecture import Architecture, shape_of
from zluda_stack.models.gguf_reader import ARCHITECTURE, NAME, TEMPLATE, TOKENS, Header, Tensor


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
    shape = model.shape
    if shape is None or not blueprint.known(shape.architecture):
        return None
    if not mixture.known(model.quantisation):
        return None
    return mixture.mixed(
        blueprint.tensors_of(shape, model.context_length),
        model.quantisation,
        shape.architecture,
        shape.layers + shape.predict_layers,
    )


def _header(model: Model, shape: Shape, tensors: tuple[Tensor, ...]) -> Header:
    keys = {f"{shape.architecture}.{key}": number for key, number in _keys(model, shape).items()}
    texts = {ARCHITECTURE: shape.architecture, NAME: model.title}
    if model.template:
        texts[TEMPLATE] = model.template
    return Header(
        size=sum(tensor.bytes or 0 for tensor in tensors),
        values={**texts, **keys},
        arrays={},
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
        latent = shape.latent
        keys |= {
            "attention.key_length": latent.rank + latent.rope,
            "attention.value_length": latent.rank,
            "attention.key_length_mla": latent.nope + latent.rope,
        }
    if shape.linear is not None:
        linear = shape.linear
        keys |= {
            "full_attention_interval": linear.interval,
            "ssm.conv_kernel": linear.kernel,
            "ssm.state_size": linear.state,
            "ssm.group_count": linear.key_heads,
            "ssm.inner_size": linear.state * linear.value_heads,
        }
    return keys
