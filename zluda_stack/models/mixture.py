"""Which type each tensor gets when llama.cpp quantises a model: Q4_K_M and the like are mixtures.

Pure. The rules are those of llama.cpp b11434 (src/llama-quant.cpp, read 2026-11-30), for a
quantisation without an importance matrix; one with it differs for no type that is known here.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from zluda_stack.models.blueprint import Blank
from zluda_stack.models.gguf_reader import Tensor
from zluda_stack.models.gguf_types import TENSOR_TYPES

# The type of most tensors, by the name of the mixture.
_DEFAULTS = {
    "F16": "F16",
    "BF16": "BF16",
    "Q4_0": "Q4_0",
    "Q4_1": "Q4_1",
    "Q8_0": "Q8_0",
    "Q6_K": "Q6_K",
    "Q4_K_M": "Q4_K",
    "Q5_K_M": "Q5_K",
    "MXFP4": "MXFP4",
}
_MORE_BITS = {"Q4_K_M", "Q5_K_M"}
# What takes the place of a type whose blocks do not divide the row.
_SMALLER_BLOCKS = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
_NEVER = ("_norm.weight", "ffn_gate_inp.weight", "ssm_conv1d", "position_embd.weight")
_VALUES = ("attn_v.weight", "attn_qkv.weight")
_BY_NAME = {kind.name: kind for kind in TENSOR_TYPES.values()}
_LLAMA_70B = ("llama", 80)


def known(quantisation: str) -> bool:
    """Whether the mixture of `quantisation` can be computed."""
    return quantisation in _DEFAULTS


def mixed(
    blanks: Iterable[Blank], quantisation: str, architecture: str, layers: int
) -> tuple[Tensor, ...]:
    """The tensors with the type and the bytes that they get in a `known` quantisation.

    `layers` counts the blocks for multi-token prediction too.
    """
    named = tuple(blanks)
    values = [name for name, _ in named if name.endswith(_VALUES)]
    mix = _Mix(
        quantisation,
        tied=all(name != "output.weight" for name, _ in named),
        layers=layers,
        values={name: place for place, name in enumerate(values)},
        is_70b=(architecture, layers) == _LLAMA_70B,
    )
    return tuple(_tensor(name, shape, mix.type_of(name, shape)) for name, shape in named)


def _tensor(name: str, shape: tuple[int, ...], kind: str) -> Tensor:
    found = _BY_NAME[kind]
    return Tensor(name, shape, kind, prod(shape) // found.block * found.size)


class _Mix:
    """The rules of one quantisation of one model."""

    def __init__(
        self, quantisation: str, *, tied: bool, layers: int, values: dict[str, int], is_70b: bool
    ) -> None:
        self._quantisation = quantisation
        self._default = _DEFAULTS[quantisation]
        self._tied = tied
        self._layers = layers
        self._values = values
        self._is_70b = is_70b

    def type_of(self, name: str, shape: tuple[int, ...]) -> str:
        """The name of the tensor's type."""
        if len(shape) < 2 or not name.endswith("weight") or any(word in name for word in _NEVER):
            return "F32"
        kind = self._wanted(name, shape)
        if shape[0] % _BY_NAME[kind].block:
            kind = _SMALLER_BLOCKS.get(kind, kind)
        return kind if shape[0] % _BY_NAME[kind].block == 0 else "F16"

    def _wanted(self, name: str, shape: tuple[int, ...]) -> str:
        if _BY_NAME[self._default].block == 1:
            return self._default
        if name == "output.weight" or (self._tied and name == "token_embd.weight"):
            return self._output(shape)
        if self._default == "MXFP4":
            return "MXFP4" if len(shape) == 3 else "Q8_0"
        if name in self._values:
            return self._value(self._values[name])
        if "ffn_down" in name and self._quantisation in _MORE_BITS:
            number = int(name.split(".")[1])
            return "Q6_K" if _has_more_bits(number, self._layers) else self._default
        return self._default

    def _output(self, shape: tuple[int, ...]) -> str:
        fits = shape[0] % _BY_NAME[self._default].block == 0
        return "Q6_K" if fits and self._default not in {"Q8_0", "MXFP4"} else "Q8_0"

    def _value(self, place: int) -> str:
        if self._quantisation in _MORE_BITS and _has_more_bits(place, len(self._values)):
            return "Q6_K"
        return "Q5_K" if self._is_70b and self._default == "Q4_K" else self._default


def _has_more_bits(place: int, count: int) -> bool:
    """The first and the last eighth, and every third between (use_more_bits)."""
    eighth = count // 8
    return place < eighth or place >= 7 * count // 8 or (place - eighth) % 3 == 2
