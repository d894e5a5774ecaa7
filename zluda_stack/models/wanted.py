"""What is known of a model before it is fetched."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from zluda_stack.catalog.schema import HubModel, ModelFile, PypiModel


class WantedModel(Protocol):
    """What is known beforehand of a model to fetch; one of the catalogue is such a thing."""

    @property
    def name(self) -> str:
        """What the store calls it."""

    @property
    def files(self) -> tuple[ModelFile, ...]:
        """Its files in order; their names are relative to the folder of the source."""

    @property
    def pypi(self) -> PypiModel | None:
        """The wheel that holds it."""

    @property
    def hub(self) -> HubModel | None:
        """The repository that holds it."""

    @property
    def https(self) -> str | None:
        """The URL of the folder that holds it."""


class Described(Struct, frozen=True, kw_only=True):
    """A model that the user described, or that the store has a record of."""

    name: str
    files: tuple[ModelFile, ...]
    pypi: PypiModel | None = None
    hub: HubModel | None = None
    https: str | None = None
