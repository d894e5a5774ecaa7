"""The shape of a GGUF model: what its caches and buffers follow from.

Read the way llama.cpp b11434 does (src/llama-model.cpp load_hparams, src/llama-hparams.cpp and
src/models/*.cpp, read 2026-11-30), so that an absent key means here what it means there.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from zluda_stack.errors import HostProblem
from zluda_stack.models.gguf_reader import (
    ARCHITECTURE,
    NAME,
    TEMPLATE,
    TOKENS,
    BadGguf,
    Header,
    Tensor,
    read,
)

# How often a layer sees the whole context where the file does not say which do: every n-th, the
# last of each n, or the first where `True`. An architecture that is not here sees it in all.
_EVERY_NTH_IS_FULL = {
    "afmoe": (4, False),
    "cohere2": (4, False),
    "cohere2moe": (4, True),
    "exaone-moe": (4, False),
    "gemma2": (2, False),
    "gemma3": (6, False),
    "gemma3n": (5, False),
    "gpt-oss": (2, False),
    "laguna": (4, True),
    "llama4": (4, False),
    "mellum": (4, False),
    "olmo2": (4, False),
    "plamo3": (8, False),
    "smallthinker": (4, True),
}
# These name their layers in the file.
_PATTERN_IN_FILE = {"gemma4", "granite-swa", "mimo2", "step35"}
_CHUNK = 8192  # llama4's, which its files do not hold
_RECURRENT_BY_INTERVAL = {"qwen35", "qwen35moe", "qwen3next"}
_ALL_RECURRENT = {"mamba", "mamba2"}
_KV_FROM_START = {"gemma3n": 20}
# Keys of models whose caches are of a kind that is not computed here.
_OTHER_CACHES = ("attention.indexer.head_count", "wkv.head_size", "kda.head_dim")
_MOST_PARTS = 1000
_MOST_LAYERS = 512  # LLAMA_MAX_LAYERS


class Layer(Struct, frozen=True, kw_only=True):
    """One layer. `key` and `value` are what its cache holds of a token, in elements; 0 for none.

    `window` is how many tokens it looks back, 0 for all of them. `recurrent` is the state of
    one sequence in elements, which does not grow with the context. `query` is the width of its
    queries, `wide` that of its dense feed-forward, all in elements.
    """

    heads: int
    key: int
    value: int
    query: int
    window: int
    recurrent: int
    wide: int


class Architecture(Struct, frozen=True, kw_only=True):
    """A model's shape; widths are in elements, `tensors` those of all its parts.

    `latent` is multi-head latent attention (DeepSeek), `gated` that a feed-forward has a gate,
    `normed_after` that results are normalised again (Gemma).
    """

    name: str
    title: str | None
    context_length: int | None
    vocabulary: int
    embedding: int
    layers: tuple[Layer, ...]
    latent: bool
    gated: bool
    normed_after: bool
    query_gate: bool
    experts: int
    experts_used: int
    expert_wide: int
    tensors: tuple[Tensor, ...]
    parts: int
    template: bool
    tools: bool

    @property
    def quantisations(self) -> dict[str, int]:
        """Bytes by tensor type, the most first."""
        sizes: Counter[str] = Counter()
        for tensor in self.tensors:
            sizes[tensor.type] += tensor.bytes or 0
        return dict(sizes.most_common())


def read_architecture(path: Path) -> Architecture:
    """The shape of the model in the GGUF file at `path`, and in its other parts.

    Raises BadGguf for a file that cannot be used or a model that is not understood, OSError or
    ValueError when it cannot be opened.
    """
    return shape_of(read_parts(path))


def known_architecture(path: Path) -> Architecture:
    """As `read_architecture`, for a file that a user named.

    Raises HostProblem, which names the part of the model that cannot be used.
    """
    try:
        return read_architecture(path)
    except (BadGguf, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        other = getattr(error, "filename", None) or path
        raise HostProblem(f"{other}: {reason}", "Give the path of a whole GGUF file.") from error


def read_parts(path: Path) -> tuple[Header, ...]:
    """The headers of the GGUF file at `path` and of the model's other parts, in their order.

    Raises as `read_architecture`, but for a model that is not understood.
    """
    first = read(path)
    return (first, *(read(other) for other in _other_parts(path, first)))


def shape_of(parts: tuple[Header, ...]) -> Architecture:
    """The shape of the model that has these headers. Raises BadGguf when it is not understood."""
    tensors = tuple(tensor for part in parts for tensor in part.tensors)
    for tensor in tensors:
        if tensor.bytes is None:
            raise BadGguf(f"its tensor {tensor.name} has the unknown {tensor.type}")
    return architecture_from(parts[0], tensors, len(parts))


def _other_parts(path: Path, first: Header) -> list[Path]:
    """The paths of parts 2 and on: llama.cpp names them NAME-00001-of-00003.gguf."""
    count = first.count("split.count") or 1
    if count == 1:
        return []
    ending = f"-00001-of-{count:05d}.gguf"
    if first.count("split.no") or not path.name.endswith(ending):
        raise BadGguf(f"it is one of {count} parts: name the first, which ends in {ending}")
    if count > _MOST_PARTS:
        raise BadGguf(f"its header claims {count} parts")
    stem = path.name.removesuffix(ending)
    return [path.with_name(f"{stem}-{n:05d}-of-{count:05d}.gguf") for n in range(2, count + 1)]


def architecture_from(header: Header, tensors: tuple[Tensor, ...], parts: int) -> Architecture:
    """The shape that `header` tells of, with the tensors of all `parts`.

    Raises BadGguf for a model that is not understood.
    """
    name = header.text(ARCHITECTURE)
    if name is None:
        raise BadGguf("its header names no model architecture")
    keys = _Keys(header, name)
    for key in _OTHER_CACHES:
        if keys.number(key):
            raise BadGguf(f"the cache of a {name} model with {key} is not computed here")
    names = {tensor.name for tensor in tensors}
    layers = tuple(_layer(keys, index) for index in range(keys.layers))
    return Architecture(
        name=name,
        title=header.text(NAME),
        context_length=keys.number("context_length") or None,
        vocabulary=header.lengths.get(TOKENS) or keys.number("vocab_size"),
        embedding=keys.needed("embedding_length"),
        layers=layers,
        latent=keys.latent,
        gated=any(".ffn_gate" in name or ".ffn_gate_up" in name for name in names),
        normed_after="blk.0.post_ffw_norm.weight" in names,
        query_gate=name in _RECURRENT_BY_INTERVAL,
        experts=keys.number("expert_count"),
        experts_used=max(
            (keys.each("expert_used_count", n) for n in range(len(layers))), default=0
        ),
        expert_wide=max(
            (keys.each("expert_feed_forward_length", n) for n in range(len(layers))), default=0
        )
        or max((layer.wide for layer in layers), default=0),
        tensors=_loaded(tensors, len(layers)),
        parts=parts,
        template=header.text(TEMPLATE) is not None,
        tools=header.tools,
    )


def _loaded(tensors: tuple[Tensor, ...], layers: int) -> tuple[Tensor, ...]:
    """Without the blocks for multi-token prediction, which llama.cpp skips unless asked."""
    return tuple(tensor for tensor in tensors if (block_of(tensor) or 0) < layers)


def block_of(tensor: Tensor) -> int | None:
    """The number of the layer that the tensor belongs to, None for those of no layer."""
    return _block_named(tensor.name)


@lru_cache(1 << 14)  # the names are the same from model to model, and asked for again and again
def _block_named(name: str) -> int | None:
    start, _, rest = name.partition(".")
    number = rest.partition(".")[0]
    return int(number) if start == "blk" and number.isdecimal() and len(number) < 6 else None


class _Keys:
    """The keys of one architecture, with llama.cpp's defaults."""

    def __init__(self, header: Header, name: str) -> None:
        self._header = header
        self.name = name
        self.layers = self.needed("block_count") - self.number("nextn_predict_layers")
        if not 0 < self.layers <= _MOST_LAYERS:
            raise BadGguf(f"its header claims {self.layers} layers")
        self.latent = bool(self.number("attention.key_length_mla"))

    def number(self, key: str) -> int:
        """The count at `key`, 0 when the file has none."""
        return self._header.count(f"{self.name}.{key}") or 0

    def needed(self, key: str) -> int:
        """The count at `key`. Raises BadGguf when the file has none."""
        value = self.number(key)
        if not value:
            raise BadGguf(f"its header lacks {self.name}.{key}")
        return value

    def each(self, key: str, index: int, default: int | None = None) -> int:
        """The count at `key` for layer `index`: a value per layer, or one for all."""
        values = self._header.arrays.get(f"{self.name}.{key}")
        if values is not None:
            value = values[index] if index < len(values) else 0
            return int(value) if 0 <= value < 1 << 31 else 0  # not so for a NaN
        if default is not None and f"{self.name}.{key}" not in self._header.values:
            return default
        return self.number(key)

    def per_layer(self, key: str) -> bool:
        """Whether the file has an array at `key`."""
        return f"{self.name}.{key}" in self._header.arrays

    def has(self, key: str) -> bool:
        """Whether the file has a value or an array at `key`."""
        return f"{self.name}.{key}" in self._header.values or self.per_layer(key)


def _layer(keys: _Keys, index: int) -> Layer:
    heads = keys.each("attention.head_count", index)
    window = _window(keys, index)
    recurrent = _is_recurrent(keys, index)
    key_head, value_head = _head_lengths(keys, heads, windowed=bool(window))
    kv_heads = keys.each("attention.head_count_kv", index, default=heads)
    cached = not recurrent and index < _layers_with_cache(keys)
    return Layer(
        heads=heads,
        key=key_head * kv_heads if cached else 0,
        # With latent attention the values are computed from the keys (llama-kv-cache.cpp).
        value=value_head * kv_heads if cached and not keys.latent else 0,
        query=key_head * heads,
        window=window,
        recurrent=_state(keys) if recurrent else 0,
        wide=keys.each("feed_forward_length", index),
    )


def _head_lengths(keys: _Keys, heads: int, *, windowed: bool) -> tuple[int, int]:
    default = keys.number("embedding_length") // heads if heads else 0
    lengths = []
    for key in ("attention.key_length", "attention.value_length"):
        length = keys.each(key, 0, default=default)
        lengths.append(keys.each(f"{key}_swa", 0, default=length) if windowed else length)
    return lengths[0], lengths[1]


def _layers_with_cache(keys: _Keys) -> int:
    """How many layers, from the first, have a cache of their own; the rest use an earlier one's."""
    return _KV_FROM_START.get(keys.name, keys.layers - keys.number("attention.shared_kv_layers"))


def _window(keys: _Keys, index: int) -> int:
    length = keys.number("attention.sliding_window")
    if keys.name == "llama4":
        length = _CHUNK if length or not keys.has("attention.sliding_window") else 0
    pattern = "attention.sliding_window_pattern"
    known = keys.name in _EVERY_NTH_IS_FULL or keys.name in _PATTERN_IN_FILE
    if not length or not known:
        return 0
    if keys.per_layer(pattern):
        return length if keys.each(pattern, index) else 0
    every, first = _EVERY_NTH_IS_FULL.get(keys.name, (1, False))
    every = keys.number(pattern) or every
    full = index % every == (0 if first else every - 1)
    return 0 if full else length


def _is_recurrent(keys: _Keys, index: int) -> bool:
    if keys.name in _ALL_RECURRENT:
        return True
    if keys.name in _RECURRENT_BY_INTERVAL:
        if keys.has("attention.recurrent_layers"):
            return bool(keys.each("attention.recurrent_layers", index))
        return (index + 1) % (keys.number("full_attention_interval") or 4) != 0
    if not _state(keys) or keys.each("attention.head_count_kv", index, default=1):
        return False
    # nemotron_h has layers that are a feed-forward and nothing else.
    return not keys.name.startswith("nemotron_h") or not keys.each("feed_forward_length", index)


def _state(keys: _Keys) -> int:
    """The elements of one sequence's state: convolution and state space, or short convolution."""
    short = keys.number("shortconv.l_cache")
    if short:
        return keys.number("embedding_length") * (short - 1)
    inner, size = keys.number("ssm.inner_size"), keys.number("ssm.state_size")
    convolution = inner + 2 * keys.number("ssm.group_count") * size
    return max(0, keys.number("ssm.conv_kernel") - 1) * convolution + size * inner
