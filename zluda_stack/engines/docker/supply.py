"""Where the images of a plan come from: they are here, a registry has them, or they are built."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from zluda_stack.engines.docker import build, registry
from zluda_stack.engines.docker.containers import unreachable
from zluda_stack.errors import HostProblem
from zluda_stack.host.commands import ask
from zluda_stack.plan.offline import BRINGS
from zluda_stack.plan.types import ImagePlan, Plan
from zluda_stack.progress import Progress
from zluda_stack.render.content_key import content_key
from zluda_stack.render.images import read_parts
from zluda_stack.render.labels import BUILT_FROM

if TYPE_CHECKING:
    from docker import DockerClient


_TAG = "{{.Repository}}:{{.Tag}}"


class Located(Struct, frozen=True, kw_only=True):
    """An image, and where it is already.

    `known` is True when the engine has an image of that name, `current` when that one was built
    from the very same contents, which those of an image with a folder of this machine never are.
    `remote` is what the registry has of it, as REPOSITORY@DIGEST.
    """

    image: ImagePlan
    known: bool
    current: bool
    remote: str | None = None


class Supply(Struct, frozen=True, kw_only=True):
    """The images that are wanted, in the order of building.

    `stages` are images of the plan that the registry has, by name, as REPOSITORY@DIGEST: one that
    others include as a build stage need not be built for them.
    """

    images: tuple[Located, ...]
    stages: dict[str, str] = {}

    def stages_of(self, image: ImagePlan) -> dict[str, str]:
        """Those of `stages` that the Dockerfile of `image` includes."""
        included = {part.name for part in read_parts(image)} - {image.name}
        return {name: where for name, where in self.stages.items() if name in included}


def here(client: DockerClient, images: Iterable[ImagePlan]) -> Supply:
    """`images` as far as the engine has them; no registry is asked. Raises HostProblem."""
    return Supply(images=tuple(_locate(client, image) for image in images))


def nowhere(images: Iterable[ImagePlan]) -> Supply:
    """`images` for an engine that cannot be asked: none is there."""
    return by_name(images, ())


def by_name(images: Iterable[ImagePlan], tags: Container[str]) -> Supply:
    """`images` for an engine that has those `tags`, none of which counts as current."""
    return Supply(
        images=tuple(Located(image=one, known=one.tag in tags, current=False) for one in images)
    )


def tags_here(images: Iterable[ImagePlan], environ: Mapping[str, str]) -> frozenset[str] | None:
    """The tags of `images` that the docker command lists; none when the engine is away.

    None when it does not say so in time: then nobody knows.

    For those who only look: the command runs once, in a tenth of the time that importing the
    engine's Python package takes.
    """
    wanted = [f"--filter=reference={image.tag}" for image in images]
    (answer,) = ask([("docker", "image", "ls", f"--format={_TAG}", *wanted)], environ)
    return None if answer.late else frozenset(answer.output.split())


def survey(client: DockerClient, plan: Plan, images: Iterable[ImagePlan]) -> Supply:
    """`images` of `plan`; the plan's registry is asked when one of them is not here.

    Raises HostProblem when the engine or the registry does not answer, and for an image that is
    not here when the plan is offline.
    """
    supply = here(client, images)
    if plan.offline:
        return _all_here(supply)
    if plan.registry is None or all(one.current for one in supply.images):
        return supply
    fixed = [image for image in plan.images if content_key(image) is not None]
    names = registry.names_in(plan.registry, fixed)
    remote = {image: registry.find(client, name) for image, name in names.items()}
    found = {image: where for image, where in remote.items() if where is not None}
    located = (structs.replace(one, remote=found.get(one.image.name)) for one in supply.images)
    return Supply(images=tuple(located), stages=found)


def lacking(supply: Supply) -> tuple[ImagePlan, ...]:
    """The images that are not here as planned; of one without a key, any of its name will do."""
    return tuple(
        one.image
        for one in supply.images
        if not (one.current or (one.known and content_key(one.image) is None))
    )


def _all_here(supply: Supply) -> Supply:
    for image in lacking(supply):
        raise HostProblem(
            f"the image {image.tag} is not here as planned, and offline none is built or pulled",
            BRINGS,
        )
    return Supply(images=tuple(structs.replace(one, current=True) for one in supply.images))


def commands(supply: Supply, project: Path) -> tuple[tuple[str, ...], ...]:
    """What `provide` runs, one command line after the other."""
    return tuple(line for one in supply.images for line in _commands(supply, one, project))


def provide(
    client: DockerClient, supply: Supply, project: Path, log_folder: Path, progress: Progress
) -> dict[str, Path]:
    """Pull or build, in their order, the images that are not here; returns the logs, by image.

    `project` is the rendered folder. Raises EngineFailure, HostProblem.
    """
    written = {}
    for one in supply.images:
        image = one.image
        if one.current:
            continue
        if one.remote is not None:
            log = registry.pull(client, image, one.remote, log_folder, progress)
        else:
            line = build.command(image, project, supply.stages_of(image))
            log = build.build(image, line, log_folder, progress)
        written[image.name] = log
    return written


def _commands(supply: Supply, one: Located, project: Path) -> tuple[tuple[str, ...], ...]:
    if one.current:
        return ()
    if one.remote is not None:
        return registry.pull_commands(one.image, one.remote)
    return (build.command(one.image, project, supply.stages_of(one.image)),)


def _locate(client: DockerClient, image: ImagePlan) -> Located:
    from docker.errors import DockerException, ImageNotFound
    from requests import RequestException

    try:
        labels = client.images.get(image.tag).labels
    except ImageNotFound:
        return Located(image=image, known=False, current=False)
    except (DockerException, RequestException) as error:
        raise unreachable(error) from error
    key = content_key(image)
    return Located(
        image=image, known=True, current=key is not None and labels.get(BUILT_FROM) == key
    )
