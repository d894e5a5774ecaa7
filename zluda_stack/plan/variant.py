"""Which base images the images of a stack are built on."""

from __future__ import annotations

from msgspec import Struct

from zluda_stack.catalog.nearest import nearest
from zluda_stack.catalog.schema import BaseImage, Catalog, Variant
from zluda_stack.errors import PlanRefused


class Bases(Struct, frozen=True, kw_only=True):
    """A base variant with its two images, both pinned by digest."""

    variant: Variant
    development: BaseImage
    runtime: BaseImage


def choose_bases(catalog: Catalog, variant: str, base: str | None) -> Bases:
    """The bases for the settings `variant` (auto: the catalogue's default) and `base`.

    `base` is a development image of the variant (NAME:TAG or a bare tag; None: the variant's
    own). Raises PlanRefused for an unknown name, and for an image whose digest nobody has seen.
    """
    chosen = _variant(catalog, variant)
    return Bases(
        variant=chosen,
        development=_pinned(catalog, _development(catalog, chosen, base), chosen),
        runtime=_pinned(catalog, chosen.runtime, chosen),
    )


def _variant(catalog: Catalog, wish: str) -> Variant:
    name = catalog.defaults.variant if wish == "auto" else wish
    try:
        return catalog.variants[name]
    except KeyError:
        raise PlanRefused(
            f"no base variant {wish!r} in the catalogue",
            f"There are {', '.join(catalog.variants)}; auto is {catalog.defaults.variant}.",
        ) from None


def _development(catalog: Catalog, variant: Variant, wish: str | None) -> str:
    if wish is None:
        return variant.development
    own_name = catalog.bases[variant.development].name
    for key in (wish, f"{own_name}:{wish}"):
        if key in catalog.bases:
            return key
    close = nearest(wish, catalog.bases)
    raise PlanRefused(
        f"no base image {wish!r} in the catalogue",
        f"Nearest: {', '.join(close)}."
        if close
        else f"The default of {variant.name} is {variant.development}.",
    )


def _pinned(catalog: Catalog, key: str, variant: Variant) -> BaseImage:
    base = catalog.bases[key]
    if base.digest is None:
        raise PlanRefused(
            f"the digest of {key} was never seen, so it cannot be pinned",
            f"Use {variant.development}, whose digest is known.",
        )
    return base
