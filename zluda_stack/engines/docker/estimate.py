"""What a build takes the first time, and whether this engine's disk holds it (case C18)."""

from __future__ import annotations

import shutil
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from zluda_stack.engines.docker.build import FREE_SPACE_HINT
from zluda_stack.engines.docker.containers import unreachable
from zluda_stack.engines.docker.supply import Supply
from zluda_stack.errors import HostProblem
from zluda_stack.plan.types import ImagePlan
from zluda_stack.render.images import read_parts

if TYPE_CHECKING:
    from docker import DockerClient

_GB = 1_000_000_000
_MINUTES_IN_HOUR = 60
# Below both, nobody needs to be asked; our choice.
_SHORT_MINUTES = 20
_SMALL_GB = 10


class StageCost(Struct, frozen=True, kw_only=True):
    """One stage that has to be built: `part` is the folder under images/ that it comes from."""

    part: str
    stage: str
    minutes: float
    disk_gb: float
    memory_gb: float
    source: str


class ImageCost(Struct, frozen=True, kw_only=True):
    """One image: `present` when the engine has it, so that only what changed is built.

    `pulled` when a registry has it, so that nothing is built.
    """

    image: str
    tag: str
    present: bool
    pulled: bool
    stages: tuple[StageCost, ...]


class BuildCost(Struct, frozen=True, kw_only=True):
    """A whole build. `free_gb` is None when the engine's disk is not one of this machine's.

    Minutes are for two cores; a stage that several images share counts once.
    """

    images: tuple[ImageCost, ...]
    minutes: float
    disk_gb: float
    memory_gb: float
    free_gb: float | None
    storage: str

    @property
    def is_large(self) -> bool:
        """True when the user must agree before it starts."""
        return self.minutes >= _SHORT_MINUTES or self.disk_gb >= _SMALL_GB

    @property
    def summary(self) -> str:
        """Time, disk and memory in one line, for people."""
        return (
            f"about {duration(self.minutes)} on two cores, {self.disk_gb:.1f} GB of disk and "
            f"{self.memory_gb:.1f} GB of memory"
        )


def estimate(client: DockerClient | None, supply: Supply) -> BuildCost:
    """What providing `supply` takes with this engine, or with none that is known.

    Raises HostProblem when the engine is away.
    """
    costs = tuple(
        ImageCost(
            image=one.image.name,
            tag=one.image.tag,
            present=one.known,
            pulled=one.remote is not None,
            stages=tuple(_stages(one.image, without=supply.stages_of(one.image))),
        )
        for one in supply.images
    )
    built = (cost for cost in costs if not cost.present and not cost.pulled)
    missing = {stage for cost in built for stage in cost.stages}
    storage = "" if client is None else _storage(client)
    return BuildCost(
        images=costs,
        minutes=sum(stage.minutes for stage in missing),
        disk_gb=sum(stage.disk_gb for stage in missing),
        memory_gb=max((stage.memory_gb for stage in missing), default=0),
        free_gb=None if client is None else _free_gb(client, storage),
        storage=storage,
    )


def require_room(cost: BuildCost) -> None:
    """Raises HostProblem, with both numbers, when the disk cannot hold the build."""
    if cost.free_gb is not None and cost.free_gb < cost.disk_gb:
        raise HostProblem(
            f"the images need about {cost.disk_gb:.0f} GB, and {cost.storage} has "
            f"{cost.free_gb:.0f} GB free",
            FREE_SPACE_HINT,
        )


def duration(minutes: float) -> str:
    """Minutes as people say them."""
    if minutes < _MINUTES_IN_HOUR:
        return f"{max(1, round(minutes))} min"
    return f"{minutes / _MINUTES_IN_HOUR:.1f} h"


def _stages(image: ImagePlan, *, without: Container[str]) -> Iterable[StageCost]:
    """The stages of all parts of `image` but those named in `without`."""
    for part in read_parts(image):
        for stage in part.estimates if part.name not in without else ():
            yield StageCost(
                part=part.name,
                stage=stage.stage,
                minutes=stage.minutes,
                disk_gb=stage.disk_gb,
                memory_gb=stage.memory_gb,
                source=stage.source,
            )


def _storage(client: DockerClient) -> str:
    """The folder in which the engine keeps images; empty when it is none of this machine's."""
    from docker.errors import DockerException
    from requests import RequestException

    try:
        info = client.api.info()
    except (DockerException, RequestException) as error:
        raise unreachable(error) from error
    # Docker Desktop names a folder of its virtual machine, which may be here too.
    in_machine = str(info.get("OperatingSystem", "")).startswith("Docker Desktop")
    return "" if in_machine else str(info.get("DockerRootDir", ""))


def _free_gb(client: DockerClient, storage: str) -> float | None:
    """The free space of the engine's storage; None when the engine is on another machine."""
    if not client.api.base_url.startswith("http+docker://localhost") or not storage:
        return None
    try:
        return shutil.disk_usage(storage).free / _GB
    except OSError:
        return None  # an engine in a virtual machine has its storage there
