"""What is known of a model before it is fetched."""

from __future__ import annotations

from collections.abc import Iterable
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


def size_of_all(files: Iterable[ModelFile]) -> int | None:
    """Bytes of all `files` together; None when one of them was never seen."""
    sizes = [file.size for file in files]
    return None if None in sizes else sum(size or 0 for size in sizes)


def space_of_wheel(package: PypiModel, size: int | None) -> int:
    """Bytes that must be free while a model of `size` bytes is taken out of its wheel.

    The wheel twice (pip copies it) or the wheel and what is in it, whichever is more.
    """
    return package.wheel_size + max(package.wheel_size, size or package.wheel_size)


class Described(Struct, frozen=True, kw_only=True):
    """A model that the user described, or that the store has a record of."""

    name: str
    files: tuple[ModelFile, ...]
    pypi: PypiModel | None = None
    hub: HubModel | None = None
    https: str | None = None

    def is_of(self, model: WantedModel) -> bool:
        """True when this is what is wanted with `model`, as far as that says."""
        if self.https != model.https or len(self.files) != len(model.files):
            return False
        revision = None if model.hub is None else model.hub.revision
        here = None if self.hub is None else self.hub.revision
        pairs = zip(self.files, model.files, strict=True)
        return revision in {None, here} and all(
            mine.name == other.name and other.sha256 in {None, mine.sha256} for mine, other in pairs
        )
