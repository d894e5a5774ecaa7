"""The files of a local image, out of the Docker Engine as one stream."""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from zluda_stack.check.closure import INSIDE
from zluda_stack.check.inspect import is_candidate
from zluda_stack.check.sources import HEAD, Found, unpack
from zluda_stack.engines.docker.containers import connect, no_name
from zluda_stack.errors import HostProblem, UsageError

if TYPE_CHECKING:
    from docker import DockerClient

# A container needs a command to be made; this one is never started.
_NEVER_RUN = ["/never-run"]


class Image:
    """An image that the Docker Engine has; what its layers delete is not looked at."""

    def __init__(self, reference: str) -> None:
        self.reference = reference
        self.links: dict[str, str] = {}
        self.required: tuple[str, ...] = ()

    def files(self) -> Iterator[Found]:
        """Its programs and libraries. Raises HostProblem, or UsageError for an unknown image."""
        with (
            connect() as client,
            _exported(client, self.reference) as stream,
            tempfile.TemporaryDirectory(prefix="zluda-stack-check-") as folder,
        ):
            try:
                with tarfile.open(fileobj=stream, mode="r|") as archive:
                    for member in archive:
                        yield from self._member(archive, member, Path(folder, "member"))
            except (tarfile.TarError, OSError) as error:
                raise HostProblem(
                    f"the Docker Engine stopped in the middle of {self.reference}: {error}",
                    "Try again.",
                ) from error

    def _member(
        self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path
    ) -> Iterator[Found]:
        name = f"image:{self.reference}{INSIDE}/{member.name.lstrip('./')}"
        if member.issym() or member.islnk():
            self.links[name] = member.linkname
            return
        source = archive.extractfile(member) if member.isreg() else None
        if source is None:
            return
        start = source.read(HEAD)
        if not is_candidate(start, name):
            return
        try:
            unpack(start, source, path, member.size)
        except HostProblem as error:
            yield Found(name, None, error.message)
        else:
            yield Found(name, path)
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def _exported(client: DockerClient, reference: str) -> Iterator[io.BufferedReader]:
    """The file system of an image as a tar archive: that of a container that never runs."""
    from docker.errors import DockerException, ImageNotFound

    try:
        client.images.get(reference)
        container = client.containers.create(reference, command=_NEVER_RUN)
    except ImageNotFound as error:
        raise UsageError(
            f"the Docker Engine has no image {reference}",
            f"`docker pull {reference}` fetches it; `docker images` lists those that are here.",
        ) from error
    except DockerException as error:
        raise no_name(reference, error) or HostProblem(
            f"the Docker Engine makes no container of {reference}: {error}",
            "Try `docker create` with it.",
        ) from error
    try:
        yield io.BufferedReader(_Chunks(cast("Iterable[bytes]", container.export())))
    finally:
        container.remove(force=True)


class _Chunks(io.RawIOBase):
    """A stream of the pieces that the engine sends."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fill `buffer` with the next bytes; 0 at the end."""
        view = memoryview(cast("bytearray", buffer))
        while not self._rest:
            piece = next(self._chunks, None)
            if piece is None:
                return 0
            self._rest = piece
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
