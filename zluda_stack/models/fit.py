"""How much memory a model takes on a card when llama.cpp serves it, before anything is loaded.

Pure: from a model's shape and how it is served to bytes. The caches are computed as llama.cpp
b11434 allocates them (src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp,
llama-hparams.cpp; read 2026-11-30). What its graph allocator makes of a batch cannot be computed
without its graphs: that part is an upper bound, fitted to what it reports for models of nine
architectures. tests/data/fit-measured.yml has those numbers, and the tests compare both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod
from typing import Literal, get_args

from msgspec import Struct, structs

from zluda_stack.models.architecture import Architecture, Layer, block_of
from zluda_stack.models.gguf_reader import Tensor
from zluda_stack.models.gguf_types import TENSOR_TYPES
from zluda_stack.models.on_host import (
    first_on_card,
    has_experts_to_leave,
    largest_visitor,
    weights,
)

KvType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "iq4_nl", "q4_1", "q4_0"]
KV_TYPES: tuple[KvType, ...] = get_args(KvType)
Attention = Literal["plain", "flash"]

# Those whose compute buffers were compared with what llama.cpp reports.
COMPARED = frozenset(
    (
        "llama",
        "qwen2",
        "qwen3",
        "qwen3moe",
        "qwen35",
        "gemma3",
        "deepseek2",
        "starcoder2",
        "gpt-oss",
    )
)
_TYPES = {kind.name.lower(): (kind.block, kind.size) for kind in TENSOR_TYPES.values()}
# llama.cpp's own n_ubatch, and what is tried where it leaves too little room: without
# FlashAttention the scores of a whole batch are in memory at once, and grow with the context.
BATCHES = (512, 256, 128)
CELLS = 256  # llama-context.cpp and llama-kv-cache-iswa.cpp pad the context to it
_VISITS = 3
_FLOAT = 4
_HALF = 2
# The legacy pool of ggml-cuda.cu takes 5 % more than it is asked for.
_AHEAD = 1.05
# A CUDA context, kernels and cuBLAS's workspace. On an NVIDIA H200 it was 600 MiB after loading,
# for all of the nine models; with 160 MiB more a prompt could fill the context, without it could
# not. Not measured on an AMD card.
RUNTIME = 760 * 2**20


class Serving(Struct, frozen=True, kw_only=True):
    """How llama.cpp's server is started.

    `context` is in tokens and shared by the `slots`; `batch` is its n_ubatch; `gpu_layers` its
    n_gpu_layers, None for all; `cpu_moe` its n_cpu_moe: the experts of so many layers, from the
    first on, are in the machine's memory. The defaults are those of the server as the images start
    it: four slots, and a CUDA backend without FlashAttention kernels, where only keys can be
    quantised.
    """

    context: int
    slots: int = 4
    kv_type: KvType = "f16"
    batch: int = 512
    attention: Attention = "plain"
    gpu_layers: int | None = None
    cpu_moe: int = 0


class Needs(Struct, frozen=True, kw_only=True):
    """Bytes on the card.

    `cache` is what grows with the context, `states` what recurrent layers keep of a sequence,
    `compute` llama.cpp's compute buffer. `scratch` is what its CUDA backend must have beside that
    while it works on a long prompt; it takes more where more is free, and gives it back.
    `runtime` is the CUDA context. `host` is what stays in the machine's memory.
    """

    weights: int
    cache: int
    states: int
    compute: int
    scratch: int
    runtime: int
    host: int

    @property
    def total(self) -> int:
        """All that must be free on the card."""
        return self.weights + self.cache + self.states + self.compute + self.scratch + self.runtime

    def has_room_outside(self, machine: int | None, *, shared: bool) -> bool:
        """True when `machine` bytes (None: unknown) hold the rest; of `shared` memory also this."""
        return machine is None or self.host + (self.total if shared else 0) <= machine


def needs(model: Architecture, serving: Serving) -> Needs:
    """What serving `model` takes on one card, in bytes."""
    first = first_on_card(model, serving.gpu_layers)
    card, host = weights(model, first, serving.cpu_moe)
    on_card = model.layers[first:]
    return Needs(
        weights=card,
        cache=_caches(model, on_card, serving),
        states=sum(layer.recurrent for layer in on_card) * _FLOAT * serving.slots,
        compute=_compute(model, serving),
        scratch=_scratch(model, serving),
        runtime=RUNTIME,
        host=host + _caches(model, model.layers[:first], serving),
    )


def largest_context(model: Architecture, serving: Serving, memory: int) -> int | None:
    """The largest context in tokens that fits `memory` bytes, None when not even CELLS do.

    It is a multiple of CELLS, or the length that the model was trained for where that fits.
    """
    ceiling = model.context_length or 1 << 20

    def fits(context: int) -> bool:
        return needs(model, structs.replace(serving, context=context)).total <= memory

    if fits(ceiling):
        return ceiling
    if not fits(CELLS):
        return None
    low, high = 1, -(-ceiling // CELLS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * CELLS) else (low, middle)
    return low * CELLS


def most_layers(model: Architecture, serving: Serving, memory: int) -> int | None:
    """The largest n_gpu_layers that fits `memory` bytes, None when not even one does."""
    for count in range(len(model.layers) + 1, 0, -1):
        if needs(model, structs.replace(serving, gpu_layers=count)).total <= memory:
            return count
    return None


def fewest_experts_outside(model: Architecture, serving: Serving, memory: int) -> int | None:
    """The smallest n_cpu_moe above 0 that fits `memory` bytes, None when not even all layers' do.

    None too for a model without experts. Of more layers on the host the card never holds more.
    """

    def fits(count: int) -> bool:
        return needs(model, structs.replace(serving, cpu_moe=count)).total <= memory

    low, high = 0, len(model.layers)
    if not has_experts_to_leave(model) or not fits(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _row(kind: str, elements: int) -> int:
    """The bytes of `elements` values of one token in a cache of the type `kind`."""
    block, size = _TYPES[kind]
    return -(-elements // block) * size


def _token(model: Architecture, layer: Layer, serving: Serving) -> tuple[int, int]:
    """The bytes that one token's keys and values take in the layer's cache.

    Without FlashAttention values are kept transposed: as wide as the widest layer's, and never
    quantised (llama-kv-cache.cpp, llama-context.cpp).
    """
    if serving.attention == "flash":
        return _row(serving.kv_type, layer.key), _row(serving.kv_type, layer.value)
    widest = max(other.value for other in model.layers) if layer.value else 0
    kind = serving.kv_type if _TYPES[serving.kv_type][0] == 1 else "f16"
    return _row(serving.kv_type, layer.key), _row(kind, widest)


def _cells(layer: Layer, serving: Serving) -> int:
    """How many tokens the layer's cache holds."""
    cells = _padded(serving.context)
    if not layer.window:
        return cells
    return _padded(min(cells, layer.window * serving.slots + serving.batch))


def _padded(count: int) -> int:
    return -(-count // CELLS) * CELLS


def _caches(model: Architecture, layers: Iterable[Layer], serving: Serving) -> int:
    """The caches of all these; most layers are alike."""
    return sum(
        count * _cells(layer, serving) * sum(_token(model, layer, serving))
        for layer, count in Counter(layers).items()
    )


def _compute(model: Architecture, serving: Serving) -> int:
    """An upper bound of llama.cpp's compute buffer on the card.

    Of a batch, either the attention scores of one layer are the most that is alive at once, or
    its feed-forward; with them what visits the card of a layer that is not there. Beside them are
    the masks and a few results as wide as the model.
    """
    token = min(serving.batch, serving.context) * _FLOAT
    wide = model.embedding * token
    keys = _most(layer.key for layer in model.layers) * token
    values = _most(layer.value for layer in model.layers) * token
    normed = 2 * wide if model.normed_after else 0
    outputs = model.vocabulary * serving.slots * _FLOAT
    beside = _masks(model, serving) + keys + values + normed + outputs
    first = first_on_card(model, serving.gpu_layers)
    visitor = largest_visitor(model, first, serving.cpu_moe)
    feed_forward = 5 * wide + _feed_forward(model, token) + visitor
    visits = _visiting_cache(model, serving, first)
    return beside + visits + max(_attention(model, serving, token), feed_forward)


def _masks(model: Architecture, serving: Serving) -> int:
    """One mask for the whole context, one for the windows; half as wide with FlashAttention."""
    tokens = min(serving.batch, serving.context)
    lengths = {_cells(layer, serving) for layer in model.layers if layer.key}
    return sum(lengths) * tokens * (_HALF if serving.attention == "flash" else _FLOAT)


def _attention(model: Architecture, serving: Serving, token: int) -> int:
    wide = model.embedding * token
    query = _most(layer.query for layer in model.layers) * token
    alive = 3 * (query + wide) if model.latent else 6 * max(query, wide)
    if model.query_gate:
        alive += query
    if model.experts and not model.latent:
        alive += model.experts_used * model.expert_wide * token
    if serving.attention == "flash":
        return alive + _half_cache(model, serving)
    return alive + _turned_values(model, serving) + _scores(model, serving) * token


def _turned_values(model: Architecture, serving: Serving) -> int:
    """A copy of one layer's cached values, transposed; of the keys where they stand for both.

    A server that would use FlashAttention lays the cache out for it, and finds only then that it
    has no kernels (build_attn_mha in llama-graph.cpp). One that is told to leave it does without.
    """
    return _most(
        _cells(layer, serving) * max(_token(model, layer, serving)) for layer in set(model.layers)
    )


def _visiting_cache(model: Architecture, serving: Serving, first: int) -> int:
    """The keys and values of one of the layers on the host: its attention is on the card too.

    Three times the larger of both is the most that was seen, for a dense model and nine with
    experts, batches of 128 to 512 tokens and contexts to 32,768.
    """
    return _VISITS * _most(
        _cells(layer, serving) * max(_token(model, layer, serving))
        for layer in set(model.layers[:first])
    )


def _half_cache(model: Architecture, serving: Serving) -> int:
    """The copy in half precision of one layer's cache, which the kernels for long prompts work on.

    It lies behind their result in the compute buffer (ggml_cuda_flash_attn_ext_get_alloc_size in
    ggml-cuda/fattn.cu); a cache of that precision is not copied.
    """
    if serving.kv_type == "f16":
        return 0
    return _most(
        _cells(layer, serving) * (layer.key + layer.value) * _HALF for layer in set(model.layers)
    )


def _scores(model: Architecture, serving: Serving) -> int:
    """The most attention scores of one token in one layer."""
    return _most(_cells(layer, serving) * layer.heads for layer in model.layers if layer.key)


def _feed_forward(model: Architecture, token: int) -> int:
    dense = _most(layer.wide for layer in model.layers) * (3 if model.gated else 1)
    experts = model.experts_used * (3 * model.expert_wide + model.embedding)
    return max(dense, experts if model.experts else 0) * token


def _scratch(model: Architecture, serving: Serving) -> int:
    """What cuBLAS works on: half-precision copies of the operands of one multiplication.

    Either the scores of one layer, or one weight matrix with its input and output
    (ggml-cuda.cu). The output tensor is not among them: it sees one token of each slot.
    """
    tokens = min(serving.batch, serving.context)
    matrices = (_matrix(tensor, tokens) for tensor in model.tensors if block_of(tensor) is not None)
    largest = _most(matrices)
    if serving.attention == "plain":
        query = _most(layer.query for layer in model.layers)
        largest = max(largest, (_scores(model, serving) + query) * tokens)
    scratch = int(largest * _HALF * _AHEAD)
    # With batches of 128 tokens Gemma 3 ran out of memory without it; with those of 512 it did not.
    windowed = any(layer.window for layer in model.layers)
    if serving.attention == "plain" and windowed and serving.batch < BATCHES[0]:
        scratch += _turned_values(model, serving)
    return scratch


def _matrix(tensor: Tensor, tokens: int) -> int:
    if len(tensor.shape) < 2:
        return 0
    return prod(tensor.shape[:2]) + sum(tensor.shape[:2]) * tokens


def _most(amounts: Iterable[int]) -> int:
    return max(amounts, default=0)
