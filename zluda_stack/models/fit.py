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
_COPIES_FROM = 512
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
    n_gpu_layers, None for all. The defaults are those of the server as the images start it: four
    slots, and a CUDA backend without FlashAttention kernels, where only keys can be quantised.
    """

    context: int
    slots: int = 4
    kv_type: KvType = "f16"
    batch: int = 512
    attention: Attention = "plain"
    gpu_layers: int | None = None


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


def needs(model: Architecture, serving: Serving) -> Needs:
    """What serving `model` takes on one card, in bytes."""
    first = _first_on_card(model, serving)
    weights, host = _weights(model, first)
    on_card = model.layers[first:]
    return Needs(
        weights=weights,
        cache=_caches(model, on_card, serving),
        states=sum(layer.recurrent for layer in on_card) * _FLOAT * serving.slots,
        compute=_compute(model, serving) + _copied_weights(model, first),
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


def _first_on_card(model: Architecture, serving: Serving) -> int:
    """The first layer on the card; the output counts as one after the last (llama-model.cpp)."""
    count = len(model.layers)
    wish = count + 1 if serving.gpu_layers is None else serving.gpu_layers
    return min(count, max(0, count + 1 - wish))


def _weights(model: Architecture, first: int) -> tuple[int, int]:
    """Bytes on the card and on the host.

    The token embedding stays on the host. A model without an output tensor uses it as one, and
    has it on the card a second time (gemma3.cpp, TENSOR_DUPLICATED).
    """
    tied = all(tensor.name != "output.weight" for tensor in model.tensors)
    card = host = 0
    for tensor in model.tensors:
        size = tensor.bytes or 0
        block = block_of(tensor)
        embedding = tensor.name.startswith("token_embd")
        if embedding or (block is not None and block < first):
            host += size
        if (not embedding or tied) and (block is None or block >= first):
            card += size
    return card, host


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
    its feed-forward. Beside them are the masks and a few results as wide as the model.
    """
    token = min(serving.batch, serving.context) * _FLOAT
    wide = model.embedding * token
    keys = _most(layer.key for layer in model.layers) * token
    values = _most(layer.value for layer in model.layers) * token
    normed = 2 * wide if model.normed_after else 0
    outputs = model.vocabulary * serving.slots * _FLOAT
    beside = _masks(model, serving) + keys + values + normed + outputs
    return beside + max(_attention(model, serving, token), 5 * wide + _feed_forward(model, token))


def _masks(model: Architecture, serving: Serving) -> int:
    """One mask for the whole context, one for the windows; half as wide with FlashAttention."""
    tokens = min(serving.batch, serving.context)
    lengths = {_cells(layer, serving) for layer in model.layers if layer.key}
    return sum(lengths) * tokens * (_HALF if serving.attention == "flash" else _FLOAT)


def _attention(model: Architecture, serving: Serving, token: int) -> int:
    wide = model.embedding * token
    query = _most(layer.query for layer in model.layers) * token
    alive = 3 * query + 2 * wide if model.latent else 6 * max(query, wide)
    if model.query_gate:
        alive += query
    if model.experts and not model.latent:
        alive += model.experts_used * model.expert_wide * token
    if serving.attention == "flash":
        return alive + _half_cache(model, serving)
    copied = 0 if _is_copied_later(model, serving) else _copied_keys(model, serving)
    return alive + copied + _scores(model, serving) * token


def _is_copied_later(model: Architecture, serving: Serving) -> bool:
    """False where the compute buffer holds a copy of one layer's cached keys or values.

    Of batches below 512 tokens only latent attention has it there, or a model that is partly on
    the host (nine architectures, batches of 64 to 1,024 tokens).
    """
    whole = _first_on_card(model, serving) == 0
    return serving.batch < _COPIES_FROM and whole and not model.latent


def _copied_keys(model: Architecture, serving: Serving) -> int:
    return _most(
        _cells(layer, serving) * max(_token(model, layer, serving)) for layer in set(model.layers)
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
    # Gemma 3 ran out of memory without it, and seven others did not.
    windowed = any(layer.window for layer in model.layers)
    if serving.attention == "plain" and windowed and _is_copied_later(model, serving):
        scratch += _copied_keys(model, serving)
    return scratch


def _matrix(tensor: Tensor, tokens: int) -> int:
    if len(tensor.shape) < 2:
        return 0
    return prod(tensor.shape[:2]) + sum(tensor.shape[:2]) * tokens


def _copied_weights(model: Architecture, first: int) -> int:
    """Weights of layers on the host that a long prompt has multiplied on the card.

    llama.cpp copies them there for a batch (ggml-cuda.cu, offload_op); the bound is a layer's
    three largest.
    """
    if not first:
        return 0
    sizes = (tensor.bytes or 0 for tensor in model.tensors if block_of(tensor) == 0)
    return sum(sorted(sizes, reverse=True)[:3])


def _most(amounts: Iterable[int]) -> int:
    return max(amounts, default=0)
