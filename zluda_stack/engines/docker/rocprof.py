"""What rocprofv3 counted in the servers of a stack, out of their containers."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO, TYPE_CHECKING

from zluda_stack import paths
from zluda_stack.engines.docker import compose, containers, stack
from zluda_stack.engines.docker.containers import Container, unreachable
from zluda_stack.engines.docker.state import StackFolder
from zluda_stack.errors import EngineFailure, HostProblem
from zluda_stack.plan.rocprof import FOLDER, servers, volume_of
from zluda_stack.plan.types import Plan
from zluda_stack.progress import Progress

if TYPE_CHECKING:
    from docker import DockerClient


def take(plan: Plan, into: Path, progress: Progress) -> None:
    """End the servers of the running stack of `plan`, and copy what was counted of each.

    It comes into a folder of `into` for each server. Raises EngineFailure, and HostProblem, also
    where it cannot be written.
    """
    folder = StackFolder(paths.stack(plan.name))
    names = servers(plan)
    progress.step("ending the server, so that rocprofv3 writes what it counted")
    if compose.act(plan.name, folder, "stop", *names) != 0:
        raise EngineFailure(
            f"docker compose could not stop the servers of {plan.name}",
            f"{folder.compose_log} says why.",
        )
    with containers.connect() as client:
        for one in stack.read_own(client, folder):
            if one.service in names:
                try:
                    _copy(client, one, into / one.service)
                except OSError as error:
                    raise HostProblem(
                        f"cannot write to {into}: {error.strerror}", "Is its disk full?"
                    ) from error


def forget(plan: Plan) -> None:
    """Remove the volumes of the stack of `plan` that held it; its containers must be gone."""
    from docker.errors import DockerException, NotFound
    from requests import RequestException

    with containers.connect() as client:
        for name in map(volume_of, servers(plan)):
            try:
                client.api.remove_volume(f"{compose.project_name(plan.name)}_{name}")
            except NotFound:
                continue
            except (DockerException, RequestException) as error:
                raise unreachable(error) from error


def _copy(client: DockerClient, container: Container, into: Path) -> None:
    """The container's folder as a folder of this machine, whose files are the user's own."""
    into.mkdir(parents=True, exist_ok=True)
    with _archive(client, container) as packed, _opened(packed) as archive:
        for member in archive:
            # Flat: rocprofv3 is told one name for all its files.
            name = Path(member.name).name
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                partial = into / f"{name}.part"
                with content, partial.open("wb") as target:
                    shutil.copyfileobj(content, target)
                partial.replace(into / name)


@contextmanager
def _opened(packed: IO[bytes]) -> Iterator[tarfile.TarFile]:
    """The archive. Raises EngineFailure for one that ends early, also while it is read."""
    try:
        with tarfile.open(fileobj=packed) as archive:
            yield archive
    except tarfile.TarError as error:
        raise EngineFailure(
            f"the Docker Engine sent a damaged archive: {error}", "Measure again."
        ) from error


@contextmanager
def _archive(client: DockerClient, container: Container) -> Iterator[IO[bytes]]:
    from docker.errors import DockerException
    from requests import RequestException

    with TemporaryFile() as packed:
        try:
            pieces, _ = client.api.get_archive(container.id, FOLDER)
            packed.writelines(pieces)
        except (DockerException, RequestException) as error:
            raise unreachable(error) from error
        except OSError as error:
            raise HostProblem(
                f"cannot write to {gettempdir()}: {error.strerror}", "Is its disk full?"
            ) from error
        packed.seek(0)
        yield packed
