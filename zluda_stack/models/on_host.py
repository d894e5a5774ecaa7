"""Which of a model's tensors stay in the machine's memory, and what of them visits the card.

Read in llama.cpp b11434 on 2026-12-01. --n-gpu-layers leaves out whole layers, from the first on
(src/llama-model.cpp). --n-cpu-moe N leaves out the experts of the first N: in these layers each
tensor in whose name LLM_FFN_EXPS_REGEX of common/common.h is found (common/arg.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from zluda_stack.models.architecture import Architecture, block_of
from zluda_stack.models.gguf_reader import Tensor

_EXPERTS = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")


def first_on_card(model: Architecture, gpu_layers: int | None) -> int:
    """The first layer on the card; the output counts as one after the last (llama-model.cpp)."""
    count = len(model.layers)
    wish = count + 1 if gpu_layers is None else gpu_layers
    return min(count, max(0, count + 1 - wish))


def weights(model: Architecture, first: int, cpu_moe: int) -> tuple[int, int]:
    """Bytes on the card and on the host.

    The layers from `first` on are on the card, but for the experts of the first `cpu_moe`. The
    token embedding stays on the host. A model without an output tensor uses it as one, and has
    it on the card a second time (gemma3.cpp, TENSOR_DUPLICATED).
    """
    everything = _size(model.tensors)
    embedding = _size(one for one in model.tensors if one.name.startswith("token_embd"))
    tied = all(tensor.name != "output.weight" for tensor in model.tensors)
    left_out = _size(_left_out(model, first, cpu_moe))
    return everything - left_out - (0 if tied else embedding), embedding + left_out


def largest_visitor(model: Architecture, first: int, cpu_moe: int) -> int:
    """The bytes of the largest tensor on the host that a long prompt is multiplied with.

    llama.cpp copies such a tensor to the card for a batch of 32 tokens and more (offload_op in
    ggml-cuda.cu), one after the other: each begins a split of the graph, so that the memory of
    the one before is used again (ggml_backend_sched_split_graph in ggml-backend.cpp).
    """
    return max((tensor.bytes or 0 for tensor in _left_out(model, first, cpu_moe)), default=0)


def has_experts_to_leave(model: Architecture) -> bool:
    """True when --n-cpu-moe does something for this model."""
    return any(_is_expert(tensor.name) for tensor in model.tensors)


def _left_out(model: Architecture, first: int, cpu_moe: int) -> Iterator[Tensor]:
    if not first and not cpu_moe:
        return iter(())
    return (one for one in model.tensors if _is_left_out(one, first, cpu_moe))


def _is_left_out(tensor: Tensor, first: int, cpu_moe: int) -> bool:
    block = block_of(tensor)
    if block is None:
        return False
    return block < first or (block < cpu_moe and _is_expert(tensor.name))


def _size(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.bytes or 0 for tensor in tensors)


@lru_cache(1 << 14)  # as the names of layers are (architecture.py)
def _is_expert(name: str) -> bool:
    return _EXPERTS.search(name) is not None
