"""Images in a registry, where each is named by the key of all that it was built from.

So what is found there under its name is right, or nothing is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from zluda_stack.engines import logs
from zluda_stack.engines.docker import logged
from zluda_stack.engines.docker.containers import unreachable
from zluda_stack.errors import EngineFailure, HostProblem, UsageError
from zluda_stack.plan.types import ImagePlan
from zluda_stack.progress import Progress
from zluda_stack.render.content_key import content_key
from zluda_stack.render.labels import BUILT_FROM

if TYPE_CHECKING:
    from docker import DockerClient


def names_in(registry: str | None, images: Iterable[ImagePlan]) -> dict[str, str]:
    """What `images` are called in `registry`, by image.

    Raises UsageError without a registry, and for an image whose contents are not fixed.
    """
    if registry is None:
        raise UsageError("no registry is named", "Name one: --registry HOST/PATH.")
    names = {}
    for image in images:
        key = content_key(image)
        if key is None:
            raise UsageError(
                f"the image {image.name} has no name in a registry: a folder of this machine, "
                "which may change, is a part of it",
                "Name the images that are meant, or leave --zluda path out.",
            )
        names[image.name] = name_in(registry, image, key)
    return names


def name_in(registry: str, image: ImagePlan, key: str) -> str:
    """What `image` with the contents `key` is called in `registry`."""
    return f"{registry}/{image.name}:{key}"


def find(client: DockerClient, name: str) -> str | None:
    """What a registry has under `name`, as REPOSITORY@DIGEST; None for nothing.

    Raises HostProblem when it does not answer.
    """
    from docker.errors import APIError, DockerException, NotFound
    from requests import RequestException

    try:
        digest = client.images.get_registry_data(name).id
    except NotFound:
        return None
    except APIError as error:
        raise HostProblem(
            f"the registry does not say whether it has {name}: {error.explanation}",
            f"`docker login {name.partition('/')[0]}` if it asks for that; without --registry "
            "everything is built here.",
        ) from error
    except (DockerException, RequestException) as error:
        raise unreachable(error) from error
    return f"{name.rpartition(':')[0]}@{digest}"


def pull_commands(image: ImagePlan, remote: str) -> tuple[tuple[str, ...], ...]:
    """What gets `remote` (REPOSITORY@DIGEST) and gives it the image's own name."""
    return ("docker", "pull", remote), ("docker", "tag", remote, image.tag)


def push_commands(image: ImagePlan, name: str) -> tuple[tuple[str, ...], ...]:
    """What pushes `image` as `name`, and then takes that name from it here."""
    return (
        ("docker", "tag", image.tag, name),
        ("docker", "push", name),
        ("docker", "rmi", "--no-prune", name),
    )


def pull(
    client: DockerClient, image: ImagePlan, remote: str, log_folder: Path, progress: Progress
) -> Path:
    """Pull `remote` (REPOSITORY@DIGEST) as `image`; returns the log.

    Raises EngineFailure, also when the image says of itself that it was built from something
    else, which somebody who moved a tag can bring about; HostProblem.
    """
    log = log_folder / f"pull-{image.name}.log"
    progress.step(f"pulling the image {image.name}: {remote}")
    fetch, _ = pull_commands(image, remote)
    _transfer(fetch, log, f"pulling {image.name}", progress)
    with _answering():
        said = client.images.get(remote).labels.get(BUILT_FROM)
    if said != content_key(image):
        raise EngineFailure(
            f"{remote} is not {image.tag}: it was built from something else (its key is {said})",
            "Remove it from the registry; without --registry the image is built here.",
        )
    _name(client, remote, image.tag)
    return log


def push(
    client: DockerClient, image: ImagePlan, name: str, log_folder: Path, progress: Progress
) -> str:
    """Push `image` as `name` unless it is there; returns it as REPOSITORY@DIGEST.

    Its build stages stay here: of NVIDIA's toolkit an image holds only what may be passed on.
    Raises EngineFailure, HostProblem.
    """
    there = find(client, name)
    if there is not None:
        return there
    log = log_folder / f"push-{image.name}.log"
    progress.step(f"pushing the image {image.name}: {name}")
    _name(client, image.tag, name)
    try:
        _, send, _ = push_commands(image, name)
        _transfer(send, log, f"pushing {image.name}", progress)
    finally:
        with _answering():
            client.api.remove_image(name, noprune=True)
    return find(client, name) or name


def _transfer(line: tuple[str, ...], log: Path, title: str, progress: Progress) -> None:
    if logged.run(line, log, logged.LastLine(title), progress) != 0:
        said = "\n".join(logs.tail(log, 3)) or "docker said nothing"
        raise EngineFailure(
            f"`{' '.join(line)}` failed: {said}",
            f"The whole log: {log}. `docker login` if the registry asks for it.",
        )


def _name(client: DockerClient, source: str, name: str) -> None:
    repository, _, tag = name.rpartition(":")
    with _answering():
        client.api.tag(source, repository, tag)


@contextmanager
def _answering() -> Iterator[None]:
    """What the engine refuses, or does not answer, as HostProblem."""
    from docker.errors import DockerException
    from requests import RequestException

    try:
        yield
    except (DockerException, RequestException) as error:
        raise unreachable(error) from error
