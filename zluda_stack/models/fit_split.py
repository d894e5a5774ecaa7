"""What each of several cards must hold when one llama.cpp server spreads a model over them.

Each card has a run of layers, the last one the output too (--split-mode layer; get_layer_buft_list
in src/llama-model.cpp of llama.cpp b11434, read 2026-11-30). It works on them as a card that has
the whole model does, so it needs what a model of these layers alone would. Beside that, llama.cpp
computes several batches at a time then, and keeps copies of what they go in with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from msgspec import structs

from zluda_stack.models.architecture import Architecture, Layer, block_of
from zluda_stack.models.fit import CELLS, Needs, Serving, needs
from zluda_stack.models.gguf_reader import Tensor

_FLOAT = 4
# An upper bound, fitted to what llama.cpp reports for seven models on two cards
# (tests/data/split-measured.yml): it keeps four copies of a batch (GGML_SCHED_MAX_COPIES).
_COPIES_OF_MASKS = 6
_COPIES_OF_A_BATCH = 8


def needs_by_card(model: Architecture, serving: Serving, split: Sequence[int]) -> tuple[Needs, ...]:
    """What serving `model` takes of each card, in bytes.

    `split` is how many layers each card has, in order; the output counts as one, so they are
    one more than the model has. The CUDA context counts for each card, host memory once.
    """
    copies = _copies(model, serving)
    found = [needs(part, serving) for part in _parts(model, split)]
    host = needs(model, serving).host
    return tuple(
        structs.replace(each, compute=each.compute + copies, host=host if number == 0 else 0)
        for number, each in enumerate(found)
    )


def _parts(model: Architecture, split: Sequence[int]) -> Iterator[Architecture]:
    """A model of each card's layers alone."""
    ends = list(accumulate(split))
    for end, count in zip(ends, split, strict=True):
        layers = range(end - count, min(end, len(model.layers)))
        is_last = end == ends[-1]
        yield structs.replace(
            model,
            layers=tuple(_as_wide(model, model.layers[number]) for number in layers),
            tensors=tuple(one for one in model.tensors if _is_in(one, layers, is_last=is_last)),
        )


def _as_wide(model: Architecture, layer: Layer) -> Layer:
    """Values are cached as wide as the widest layer's, wherever that is."""
    widest = max(each.value for each in model.layers)
    return structs.replace(layer, value=widest) if layer.value else layer


def _is_in(tensor: Tensor, layers: range, *, is_last: bool) -> bool:
    block = block_of(tensor)
    return is_last if block is None else block in layers


def _copies(model: Architecture, serving: Serving) -> int:
    """What is kept of batches that are computed at a time: their masks and their embeddings."""
    batch = min(serving.batch, serving.context)
    contexts = -(-serving.context // CELLS) * CELLS
    windows = {layer.window * serving.slots + batch for layer in model.layers if layer.window}
    masks = contexts + sum(min(contexts, window + CELLS) for window in windows)
    return _FLOAT * batch * (_COPIES_OF_MASKS * masks + _COPIES_OF_A_BATCH * model.embedding)
