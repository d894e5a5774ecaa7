"""What an image is, from its configuration and single files: nothing of it is run."""

from __future__ import annotations

import io
import posixpath
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from zluda_stack.engines.docker import containers
from zluda_stack.errors import HostProblem
from zluda_stack.plan.adapt import Libc, SourceImage
from zluda_stack.plan.run import ZLUDA

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container
    from docker.models.images import Image

_MOST_BYTES = 16 << 20
_MOST_LINKS = 8
_FOLDERS = (
    *("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"),
    *("/usr/local/cuda/lib64", "/usr/local/cuda/compat", "/usr/local/nvidia/lib64"),
)
_LIBC_FOLDERS = ("/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib/x86_64-linux-gnu")
# One library of each kind that ZLUDA stands in for.
_NVIDIA = (
    *("libcuda.so.1", "libcublas.so.12", "libcublas.so.13", "libcudnn.so.9", "libcusparse.so.12"),
    "libnvidia-ml.so.1",
)
_GLIBC = re.compile(rb"GNU C Library [^\n]* version ([0-9]+\.[0-9]+)")
_MUSL = "/lib/ld-musl-x86_64.so.1"
_SETS_PATH = re.compile(rb"LD_LIBRARY_PATH=")


def read_source(client: DockerClient, name: str) -> SourceImage:
    """What the local image `name` is. Raises HostProblem when it is not there, UsageError."""
    from docker.errors import DockerException, ImageNotFound
    from requests import RequestException

    try:
        image = client.images.get(name)
        with _never_started(client, image) as files:
            return _source(name, image, files)
    except ImageNotFound as error:
        raise HostProblem(
            f"the engine has no image {name}", f"`docker pull {name}` fetches it."
        ) from error
    except (DockerException, RequestException) as error:
        raise containers.no_name(name, error) or containers.unreachable(error) from error


class Files:
    """The files of a container that was never started."""

    def __init__(self, container: Container) -> None:
        self._container = container

    def exists(self, path: str) -> bool:
        """True for a file, a folder, or a link, wherever that leads."""
        return self._opened(path) is not None

    def read(self, path: str) -> bytes | None:
        """What is in the file at `path`; None when there is none, or one that is too large."""
        for _ in range(_MOST_LINKS):
            raw = self._archive(path)
            if raw is None:
                return None
            with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
                member = archive.next()
                if member is not None and member.issym():
                    path = posixpath.normpath(
                        posixpath.join(posixpath.dirname(path), member.linkname)
                    )
                    continue
                file = archive.extractfile(member) if member is not None else None
                return None if file is None else file.read()
        return None

    def texts(self, folder: str) -> Iterator[str]:
        """What is in each file of `folder`."""
        raw = self._archive(folder)
        if raw is None:
            return
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isreg() else None
                if file is not None:
                    yield file.read().decode(errors="replace")

    def _archive(self, path: str) -> bytes | None:
        opened = self._opened(path)
        if opened is None or opened[1] > _MOST_BYTES:
            return None
        return b"".join(opened[0])

    def _opened(self, path: str) -> tuple[Iterator[bytes], int] | None:
        """What is at `path` as an archive that is not read yet, and the size of a file there.

        A folder can hold gigabytes, so that must not be read only to see that it is there.
        """
        from docker.errors import NotFound

        try:
            stream, stat = self._container.get_archive(path)
        except NotFound:
            return None
        return iter(stream), 0 if stat is None else stat["size"]


@contextmanager
def _never_started(client: DockerClient, image: Image) -> Iterator[Files]:
    container = client.containers.create(image, command=["/never-started"])
    try:
        yield Files(container)
    finally:
        container.remove(force=True)


def read_file(client: DockerClient, image: str, path: str) -> str:
    """The text of one file of `image`; empty when it has none."""
    with _never_started(client, client.images.get(image)) as files:
        return (files.read(path) or b"").decode(errors="replace")


def copy_out(client: DockerClient, image: str, path: str, folder: Path) -> None:
    """Copy the folder `path` of the local `image` into `folder`. Raises HostProblem."""
    from docker.errors import DockerException, ImageNotFound, NotFound
    from requests import RequestException

    try:
        found = client.images.get(image)
        container = client.containers.create(found, command=["/never-started"])
        try:
            stream, _ = container.get_archive(path)
            raw = io.BytesIO(b"".join(stream))
        finally:
            container.remove(force=True)
    except (ImageNotFound, NotFound) as error:
        raise HostProblem(
            f"the engine has no image {image} with {path}",
            "Give the folder with the programs: --programs DIR.",
        ) from error
    except (DockerException, RequestException) as error:
        raise containers.unreachable(error) from error
    with tarfile.open(fileobj=raw) as archive:
        archive.extractall(folder, filter="data")


def _source(name: str, image: Image, files: Files) -> SourceImage:
    config = image.attrs["Config"]
    environment = dict(line.split("=", 1) for line in config.get("Env") or ())
    libc, glibc = _libc(files)
    entrypoint = tuple(config.get("Entrypoint") or ())
    return SourceImage(
        name=name,
        system=image.attrs["Os"],
        architecture=image.attrs["Architecture"],
        libc=libc,
        glibc=glibc,
        user=config.get("User") or "",
        entrypoint=entrypoint,
        command=tuple(config.get("Cmd") or ()),
        environment=environment,
        labels=config.get("Labels") or {},
        triggers=tuple(config.get("OnBuild") or ()),
        nvidia=tuple(_nvidia(files, environment)),
        has_zluda=files.exists(ZLUDA),
        sets_path=_sets_path(files, entrypoint),
    )


def _libc(files: Files) -> tuple[Libc, str | None]:
    """The C library and, of glibc, its version: it names itself in the library."""
    for folder in _LIBC_FOLDERS:
        found = _GLIBC.search(files.read(f"{folder}/libc.so.6") or b"")
        if found is not None:
            return "glibc", found[1].decode()
    return ("musl" if files.exists(_MUSL) else "none"), None


def _nvidia(files: Files, environment: dict[str, str]) -> Iterator[str]:
    """NVIDIA's libraries that the loader would find, with the folder of each."""
    given = environment.get("LD_LIBRARY_PATH", "").split(":")
    configured = [
        line.strip()
        for text in files.texts("/etc/ld.so.conf.d")
        for line in text.splitlines()
        if line.startswith("/")
    ]
    folders = dict.fromkeys(posixpath.normpath(one) for one in (*given, *configured) if one)
    for folder in dict.fromkeys((*folders, *_FOLDERS)):
        if not files.exists(folder):
            continue
        yield from (path for name in _NVIDIA if files.exists(path := f"{folder}/{name}"))


def _sets_path(files: Files, entrypoint: tuple[str, ...]) -> str | None:
    if not entrypoint or not entrypoint[0].startswith("/"):
        return None
    text = files.read(entrypoint[0]) or b""
    return entrypoint[0] if text.startswith(b"#!") and _SETS_PATH.search(text) else None
