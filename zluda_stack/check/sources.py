"""Where files come from: a path, a folder, a wheel, an installed package.

A source yields its programs and libraries one after the other, each as a path that can be read
while it is being looked at.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol

from zluda_stack.check.closure import INSIDE
from zluda_stack.check.inspect import is_candidate
from zluda_stack.errors import HostProblem, UsageError

HEAD = 4096
_BLOCK = 1 << 20
_ARCHIVES = (".whl", ".zip")
# Extraction leaves this much of the disk alone.
_LEFT_FREE = 1 << 30
_BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, OSError)


class Found:
    """One program or library, at `path` for as long as the source yields it.

    `problem` says why there is none; it is the host's fault or, when `is_damaged`, the file's.
    """

    def __init__(
        self, name: str, path: Path | None, problem: str = "", *, is_damaged: bool = False
    ) -> None:
        self.name = name
        self.path = path
        self.problem = problem
        self.is_damaged = is_damaged


class Source(Protocol):
    """Something that holds programs; `links` fills while `files` runs (link: what it points to).

    `required` are the names that the user asked for by themselves.
    """

    links: dict[str, str]
    required: tuple[str, ...]

    def files(self) -> Iterator[Found]:
        """Every program and library, each once. Raises StackError."""


class LocalFile:
    """One file, looked at whatever it is."""

    def __init__(self, name: str) -> None:
        self.name = os.path.normpath(name)
        self.links: dict[str, str] = {}
        self.required: tuple[str, ...] = (self.name,)

    def files(self) -> Iterator[Found]:
        """The file."""
        yield Found(self.name, Path(self.name))


class Folder:
    """A folder with all below it; what symbolic links lead to is looked at once."""

    def __init__(self, name: str) -> None:
        self.name = os.path.normpath(name)
        self.links: dict[str, str] = {}
        self.required: tuple[str, ...] = ()
        self._seen: dict[tuple[int, int], str] = {}

    def files(self) -> Iterator[Found]:
        """The programs, libraries, fat binaries, PTX files, and those in wheels, in name order."""
        yield from self._below(self.name)

    def _below(self, folder: str) -> Iterator[Found]:
        try:
            entries = sorted(Path(folder).iterdir())
            what = Path(folder).stat()
        except OSError as error:
            yield Found(folder, None, f"cannot read it: {error.strerror}")
            return
        if self._first_sight(what, folder):
            for entry in entries:
                yield from self.one(str(entry))

    def one(self, name: str) -> Iterator[Found]:
        """What there is at one path."""
        try:
            what = Path(name).stat()
        except OSError:
            return  # a link that dangles, or what is gone by now
        if stat.S_ISDIR(what.st_mode):
            yield from self._below(name)
        elif stat.S_ISREG(what.st_mode):
            if not self._first_sight(what, name):
                self.links[name] = self._seen[what.st_dev, what.st_ino]
            elif name.endswith(".whl"):
                inside = Wheel(name)
                yield from inside.files()
                self.links.update(inside.links)
            else:
                yield from _if_candidate(name)

    def _first_sight(self, what: os.stat_result, name: str) -> bool:
        return self._seen.setdefault((what.st_dev, what.st_ino), name) == name


class Wheel:
    """A wheel or another zip archive; its programs are unpacked one at a time."""

    def __init__(self, name: str) -> None:
        self.name = os.path.normpath(name)
        self.links: dict[str, str] = {}
        self.required: tuple[str, ...] = ()

    def files(self) -> Iterator[Found]:
        """The programs and libraries in it. Raises UsageError when it is no zip archive."""
        try:
            archive = zipfile.ZipFile(self.name)
        except _BROKEN_ZIP as error:
            raise UsageError(
                f"{self.name} cannot be read as a zip archive: {error}", "Download it again."
            ) from error
        with archive, tempfile.TemporaryDirectory(prefix="zluda-stack-check-") as folder:
            for number, member in enumerate(archive.infolist()):
                if not member.is_dir():
                    yield from self._member(archive, member, Path(folder, str(number)))

    def _member(
        self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path
    ) -> Iterator[Found]:
        name = f"{self.name}{INSIDE}{member.filename}"
        try:
            with archive.open(member) as stream:
                start = stream.read(HEAD)
                if not is_candidate(start, name):
                    return
                unpack(start, stream, path, member.file_size)
        except HostProblem as error:
            yield Found(name, None, error.message)
        except _BROKEN_ZIP as error:
            yield Found(name, None, f"it cannot be unpacked: {error}", is_damaged=True)
        else:
            yield Found(name, path)
        finally:
            path.unlink(missing_ok=True)


def unpack(start: bytes, rest: IO[bytes], path: Path, size: int) -> None:
    """Write `start` and the rest of a stream to `path`.

    Raises HostProblem when a file of `size` bytes leaves too little room on the disk.
    """
    if size > shutil.disk_usage(path.parent).free - _LEFT_FREE:
        raise HostProblem(
            f"there is no room in {path.parent.parent} to unpack {size} bytes",
            "Set TMPDIR to a folder on a larger disk.",
        )
    with path.open("wb") as copy:
        copy.write(start)
        shutil.copyfileobj(rest, copy, _BLOCK)


def local(name: str) -> Source:
    """What the path `name` is: a file, a folder, or an archive.

    Raises UsageError when there is nothing of that name, HostProblem when it cannot be looked at.
    """
    try:
        mode = Path(name).stat().st_mode
    except FileNotFoundError as error:
        raise UsageError(f"there is no {name}", "Check the path.") from error
    except OSError as error:
        raise HostProblem(f"cannot look at {name}: {error.strerror}", "Check the path.") from error
    if stat.S_ISDIR(mode):
        return Folder(name)
    return Wheel(name) if name.endswith(_ARCHIVES) and stat.S_ISREG(mode) else LocalFile(name)


def _if_candidate(name: str) -> Iterator[Found]:
    try:
        with Path(name).open("rb") as handle:
            start = handle.read(HEAD)
    except OSError as error:
        if _looks_like_a_program(name):
            yield Found(name, None, f"cannot read it: {error.strerror}")
        return
    if is_candidate(start, name):
        yield Found(name, Path(name))


def _looks_like_a_program(name: str) -> bool:
    base = Path(name).name
    return ".so" in base or "." not in base
