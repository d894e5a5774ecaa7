"""Find what people mean when they type a name that is almost one of ours."""

from __future__ import annotations

import re
from collections.abc import Iterable

from zluda_stack.catalog.schema import Catalog, Gpu

_MOST = 3
# Characters of a gfx target that name a family: gfx1 says nothing, gfx10 and gfx90 do.
_FAMILY = 5
_TARGET = re.compile(r"(?:gfx)?-?([0-9]{1,4}[0-9a-f]{0,2})")
# Words that people write or leave out: "7900 XTX" is "AMD Radeon RX 7900 XTX".
_BRANDS = re.compile(r"\b(?:amd|radeon|instinct|graphics|pro|ai)\b|\brx(?=\W|[0-9]|$)")


def nearest(name: str, candidates: Iterable[str], *, likeness: float = 0.6) -> tuple[str, ...]:
    """Up to three of `candidates` that `name` may stand for, best first; empty when none is near.

    Those that begin with `name` or contain it; only where there is none, those that are at
    least `likeness` similar (0 to 1, as difflib counts).
    """
    names = {candidate.lower(): candidate for candidate in candidates}
    text = name.strip().lower()
    if not text:
        return ()
    starting = [key for key in names if key.startswith(text)]
    containing = [key for key in names if text in key and key not in starting]
    found = starting + containing or _alike(text, list(names), likeness)
    return tuple(names[key] for key in found[:_MOST])


def _alike(text: str, names: list[str], likeness: float) -> list[str]:
    from difflib import get_close_matches  # every command would import it, and few make mistakes

    return get_close_matches(text, names, n=_MOST, cutoff=likeness)


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """The beginning of a hint that names the nearest candidate; empty when none is near."""
    close = nearest(name, candidates)
    return f"Did you mean {close[0]}? " if close else ""


def find_gpu(catalog: Catalog, text: str) -> Gpu | None:
    """The GPU that `text` names exactly: a gfx target, with or without gfx, or a product."""
    target = _TARGET.fullmatch(text.strip().lower())
    if target and f"gfx{target[1]}" in catalog.gpus:
        return catalog.gpus[f"gfx{target[1]}"]
    wanted = plain(text)
    for gpu in catalog.gpus.values():
        if any(plain(product) == wanted for product in gpu.products):
            return gpu
    return None


def suggest_gpu(catalog: Catalog, text: str) -> tuple[Gpu, ...]:
    """Up to three GPUs that `text` may stand for, best first; empty when none is near."""
    exact = find_gpu(catalog, text)
    if exact is not None:
        return (exact,)
    wanted = plain(text)
    family = _sharing_a_beginning(wanted, catalog.gpus)
    if family:
        return tuple(catalog.gpus[target] for target in family)
    names = {plain(product): gpu for gpu in catalog.gpus.values() for product in gpu.products}
    names |= catalog.gpus
    found = {names[name].target for name in nearest(wanted, names, likeness=0.8)}
    return tuple(gpu for gpu in catalog.gpus.values() if gpu.target in found)


def _sharing_a_beginning(text: str, targets: Iterable[str]) -> tuple[str, ...]:
    """Targets of the same family: those that agree with `text` but for its last characters."""
    for length in range(len(text), max(len(text) - 2, _FAMILY - 1), -1):
        family = [target for target in targets if target.startswith(text[:length])]
        if family:
            return tuple(family[:_MOST])
    return ()


def plain(product: str) -> str:
    """A product's name without brands, blanks and case, by which names are compared."""
    return re.sub(r"[^a-z0-9]", "", _BRANDS.sub("", product.lower()))
