"""Whether a server computes attention with llama.cpp's FlashAttention kernels."""

from __future__ import annotations

from msgspec import structs

from zluda_stack.models.architecture import Architecture
from zluda_stack.models.fit import KvType, Serving
from zluda_stack.settings import Profile

# Elements of a head, where keys and values are equally wide: ggml_cuda_get_best_fattn_kernel in
# ggml/src/ggml-cuda/fattn.cu of llama.cpp b11434 (read 2026-11-30). Those with further conditions
# (192, 320, 512, 576) are left out: without FlashAttention a model takes more memory, so what is
# planned for it is enough.
_HEADS = frozenset((40, 64, 72, 80, 96, 112, 128, 256))
# ggml_cuda_fattn_kv_type_supported in the same file knows all others.
_UNKNOWN_CACHES: frozenset[KvType] = frozenset(("iq4_nl",))
# llama-context.cpp switches it off for this one.
_NEVER = frozenset(("grok",))


def as_served(model: Architecture, serving: Serving, profile: Profile) -> Serving:
    """`serving` with the attention that a server of `profile` has for `model`.

    The CUDA build for ZLUDA has no FlashAttention kernels. Nobody has watched the HIP build's on an
    AMD card: llama.cpp decides by itself when the server starts.
    """
    known = profile != "translated" and serving.kv_type not in _UNKNOWN_CACHES
    flash = known and _has_kernels(model)
    return structs.replace(serving, attention="flash" if flash else "plain")


def _has_kernels(model: Architecture) -> bool:
    """True when every layer that attends has heads that the HIP build's kernels are there for."""
    attending = [layer for layer in model.layers if layer.key]
    return (
        model.name not in _NEVER
        and not model.latent
        and all(layer.key == layer.value for layer in attending)
        and all(layer.query // layer.heads in _HEADS for layer in attending if layer.heads)
    )
