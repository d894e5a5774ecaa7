"""What an image says about itself in images/<name>/image.yml."""

from __future__ import annotations

import msgspec
import yaml
from msgspec import Struct

from zluda_stack import paths
from zluda_stack.errors import StackError


class ImageNeeds(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an image is built from: a base image, and components of the catalogue by name."""

    base: str
    components: tuple[str, ...]


class ImageDescription(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One image: what it needs and produces, its build arguments, how it is tested.

    `files` are the files beside the template that the Dockerfile copies.
    """

    name: str
    title: str
    needs: ImageNeeds
    produces: tuple[str, ...]
    arguments: dict[str, str]
    files: tuple[str, ...]
    tests: tuple[str, ...]
    notes: tuple[str, ...]


def read_image(name: str) -> ImageDescription:
    """The description of the image `name`. Raises StackError when it is missing or malformed."""
    path = paths.images() / name / "image.yml"
    try:
        return msgspec.convert(yaml.safe_load(path.read_bytes()), type=ImageDescription)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise StackError(f"{path}: {error}", "Install zluda-stack again.") from error
