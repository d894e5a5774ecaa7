"""A bundle into this machine: each part checked first, what is here already left alone."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from zluda_stack.bundle import images
from zluda_stack.bundle.manifest import BundledImage, blob_path
from zluda_stack.bundle.reader import Bundle
from zluda_stack.errors import HostProblem, PlanRefused
from zluda_stack.models.layout import StoredFile
from zluda_stack.models.receiving import Receiving
from zluda_stack.models.store import Store
from zluda_stack.progress import Progress

if TYPE_CHECKING:
    from docker import DockerClient

_PROJECT = "project/"


class Loaded(Struct, frozen=True, kw_only=True):
    """One part of a bundle; `new` is False when this machine had it already."""

    kind: str
    name: str
    new: bool


def require_machine(bundle: Bundle) -> None:
    """Raises PlanRefused for images of another CPU architecture than this machine's."""
    manifest = bundle.manifest
    if manifest.images and manifest.machine != platform.machine():
        raise PlanRefused(
            f"the images in {bundle.path} are for {manifest.machine}, and this machine is "
            f"{platform.machine()}",
            "Save a bundle on a machine of this kind, or load its models alone: --only models.",
        )


def load_models(bundle: Bundle, store: Store, progress: Progress) -> tuple[Loaded, ...]:
    """Put the models into `store`; those that are there are hashed again, and healed.

    Raises UsageError when another model has such a name, HostProblem.
    """
    records = {model.name: model.record for model in bundle.manifest.models}
    before = {name: _is_whole(store, name, progress) for name in records}
    with store.receiving(records) as receiving:
        for file in (file for record in records.values() for file in record.files):
            if receiving.lacks(file.sha256):
                _take(bundle, file, receiving, progress)
        for name, _ in receiving.admit():
            progress.step(f"{name} is ready")
    return tuple(Loaded(kind="model", name=name, new=not here) for name, here in before.items())


def load_images(bundle: Bundle, client: DockerClient, progress: Progress) -> tuple[Loaded, ...]:
    """Give the images to the Docker Engine, but for those that it has. Raises HostProblem."""
    return tuple(_image(bundle, one, client, progress) for one in bundle.manifest.images)


def write_project(bundle: Bundle, out: Path) -> tuple[Path, ...]:
    """Write the rendered project into the folder `out`. Raises HostProblem, UsageError."""
    from zluda_stack.render import project

    members = bundle.manifest.of("project")
    files = {member.path.removeprefix(_PROJECT): bundle.text(member) for member in members}
    return project.write_project(files, out)


def _is_whole(store: Store, name: str, progress: Progress) -> bool:
    """True when the store has the model, with the right content; a damaged file is set aside."""
    if store.record(name) is None:
        return False
    return all(check.whole for check in store.verify(name, progress))


def _take(bundle: Bundle, file: StoredFile, receiving: Receiving, progress: Progress) -> None:
    """Give one file of a model to the store, which hashes it while it is copied."""
    path = blob_path(file.sha256)
    member = next(member for member in bundle.manifest.of("model") if member.path == path)
    progress.step(f"loading {file.name}")
    with bundle.open(member) as source:
        receiving.take(file.sha256, source, progress)


def _image(bundle: Bundle, one: BundledImage, client: DockerClient, progress: Progress) -> Loaded:
    if one.key is not None and _key_of(client, one.tag) == one.key:
        return Loaded(kind="image", name=one.tag, new=False)
    member = next(member for member in bundle.manifest.members if member.path == one.member)
    progress.step(f"checking the image {one.tag}")
    bundle.require_whole(member, progress)
    progress.step(f"loading the image {one.tag}")
    images.load(bundle, member, progress)
    found = _key_of(client, one.tag)
    if found != one.key:
        raise HostProblem(
            f"{one.member} did not bring the image {one.tag} that the manifest names",
            "Save the bundle again.",
        )
    return Loaded(kind="image", name=one.tag, new=True)


def _key_of(client: DockerClient, tag: str) -> str | None:
    """The content key of the image `tag`; None without one, and without the image."""
    from docker.errors import DockerException, ImageNotFound
    from requests import RequestException

    from zluda_stack.engines.docker.containers import unreachable
    from zluda_stack.render.labels import BUILT_FROM

    try:
        labels = client.images.get(tag).labels
    except ImageNotFound:
        return None
    except (DockerException, RequestException) as error:
        raise unreachable(error) from error
    key = labels.get(BUILT_FROM)
    return None if key is None else str(key)
