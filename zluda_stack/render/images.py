"""What an image says about itself in images/<name>/image.yml."""

from __future__ import annotations

from typing import Annotated

import msgspec
import yaml
from msgspec import Meta, Struct

from zluda_stack import paths
from zluda_stack.errors import StackError


class ImageNeeds(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an image is built from: a base image, and components of the catalogue by name."""

    base: str
    components: tuple[str, ...]


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
    """One image: what it needs and produces, its build arguments, how it is tested.

    `files` are the files beside the template that the Dockerfile copies; `estimates` what its
    stages cost, those of other images that it includes not repeated.
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


def read_image(name: str) -> ImageDescription:
    """The description of the image `name`. Raises StackError when it is missing or malformed."""
    path = paths.images() / name / "image.yml"
    try:
        return msgspec.convert(yaml.safe_load(path.read_bytes()), type=ImageDescription)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise StackError(f"{path}: {error}", "Install zluda-stack again.") from error
