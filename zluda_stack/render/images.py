"""What an image says about itself in images/<name>/image.yml."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec
import yaml
from msgspec import Meta, Struct

from zluda_stack import paths
from zluda_stack.catalog.schema import GateBudgets
from zluda_stack.errors import StackError
from zluda_stack.plan.types import ImagePlan


class ImageNeeds(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an image is built from: a base image, components of the catalogue by name.

    `stages` are the other folders of images/ whose build stages its Dockerfile includes;
    `sources` the files and folders of the project that are copied beside the folder's own.
    """

    base: str
    components: tuple[str, ...]
    stages: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


class StageEstimate(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one build stage takes the first time.

    `minutes` on two cores, `disk_gb` what it adds to the engine's storage (gigabytes, caches
    included), `memory_gb` what it needs at its peak. `source` says where the numbers come from.
    """

    stage: str
    minutes: float
    disk_gb: float
    memory_gb: float
    source: Annotated[str, Meta(pattern=r"^(measured on .+|unproven)$")]


class ImageDescription(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One image, or one part of images: what it needs, takes as ARG, and how it is tested.

    A part has build stages (stages.j2) and no Dockerfile of its own. `files` are the files
    beside the template that are copied; `estimates` what its stages cost, those of other images
    that it includes not repeated. `gates` is None for an image that has none.
    """

    name: str
    title: str
    needs: ImageNeeds
    produces: tuple[str, ...]
    arguments: dict[str, str]
    files: tuple[str, ...]
    tests: tuple[str, ...]
    notes: tuple[str, ...]
    estimates: tuple[StageEstimate, ...] = ()
    gates: GateBudgets | None = None


def read_image(name: str) -> ImageDescription:
    """The description of the image `name`. Raises StackError when it is missing or malformed."""
    return _read(paths.images() / name / "image.yml")


@cache
def _read(path: Path) -> ImageDescription:
    """The description at `path`, read once: a plan for every target asks for each many times."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        document = yaml.load(path.read_bytes(), Loader=loader)  # noqa: S506 -- both are safe
        return msgspec.convert(document, type=ImageDescription)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise StackError(f"{path}: {error}", "Install zluda-stack again.") from error


def read_parts(image: ImagePlan) -> tuple[ImageDescription, ...]:
    """The descriptions of `image` and of all whose stages it includes, each once.

    Where the plan takes another part in the place of one, that one's is among them.
    """
    found: dict[str, ImageDescription] = {}
    waiting = [image.name]
    while waiting:
        named = waiting.pop()
        part = image.methods.get(named, named)
        if part not in found:
            found[part] = read_image(part)
            waiting += found[part].needs.stages
    return tuple(found.values())


def copied_names(image: ImagePlan) -> set[str]:
    """The files and folders of the project that the Dockerfile of `image` copies."""
    parts = read_parts(image)
    own = {f"images/{part.name}/{file}" for part in parts for file in part.files}
    return own | {source for part in parts for source in part.needs.sources}
