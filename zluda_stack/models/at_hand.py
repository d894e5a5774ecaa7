"""The architecture of a model of the catalogue, as well as it is known here."""

from __future__ import annotations

from pathlib import Path

from zluda_stack.catalog.schema import Catalog, Model
from zluda_stack.models.architecture import Architecture, read_architecture
from zluda_stack.models.gguf_reader import BadGguf
from zluda_stack.models.published import architecture_of
from zluda_stack.models.store import Store


def architecture_at_hand(model: Model, file: Path | None) -> Architecture | None:
    """From the header of `file`, where the model is here, else from its published shape.

    None where the catalogue has none either, and for a file that this project cannot compute.
    """
    if file is None:
        return architecture_of(model)
    try:
        return read_architecture(file)
    except (BadGguf, OSError, ValueError):
        return architecture_of(model)


def architectures_at_hand(catalog: Catalog, store: Store) -> dict[str, Architecture | None]:
    """That of every model of the catalogue, by name."""
    return {
        name: architecture_at_hand(model, store.find(name))
        for name, model in catalog.models.items()
    }
