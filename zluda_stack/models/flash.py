"""Whether llama.cpp's HIP build has FlashAttention kernels for a model."""

from __future__ import annotations

from zluda_stack.models.architecture import Architecture

# Elements of a head, where keys and values are equally wide: ggml_cuda_get_best_fattn_kernel in
# ggml/src/ggml-cuda/fattn.cu of llama.cpp b11434 (read 2026-11-30). Those with further conditions
# (192, 320, 512, 576) are left out: without FlashAttention a model takes more memory, so what is
# planned for it is enough.
_HEADS = frozenset((40, 64, 72, 80, 96, 112, 128, 256))
# llama-context.cpp switches it off for this one.
_NEVER = frozenset(("grok",))


def has_flash_kernels(model: Architecture) -> bool:
    """True when every layer that attends has heads that the kernels are there for.

    Nobody has watched it on an AMD card: llama.cpp decides by itself when the server starts.
    """
    attending = [layer for layer in model.layers if layer.key]
    return (
        model.name not in _NEVER
        and not model.latent
        and all(layer.key == layer.value for layer in attending)
        and all(layer.query // layer.heads in _HEADS for layer in attending if layer.heads)
    )
