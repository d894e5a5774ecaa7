"""The files of `toolbox hipify`: what is read, where results go, and that nothing is lost."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from zluda_stack.errors import HostProblem, UsageError

STDOUT = "-"
Tell: TypeAlias = Callable[[str], None]
# As hipify-clang calls a result, and hipify-perl what it keeps of a source.
_RESULT, _BACKUP = ".hip", ".prehip"


class Way(Struct, frozen=True, kw_only=True):
    """Where results go: to `out`, over the source (`in_place`), nowhere (`check`), beside it.

    With `force` they replace what is there.
    """

    out: str | None = None
    in_place: bool = False
    check: bool = False
    force: bool = False

    def target(self, source: str) -> Path:
        """The file that the result of `source` is written to."""
        return Path(source) if self.in_place else Path(self.out or f"{source}{_RESULT}")


class Written(Struct, frozen=True, kw_only=True):
    """Where a result is, and where the source's copy; None for nowhere."""

    result: str | None = None
    backup: str | None = None


def read_sources(given: tuple[str, ...], tell: Tell) -> tuple[dict[str, bytes], dict[str, int]]:
    """The contents of the files `given` and of the sources with CUDA below folders, by name.

    Beside them, for each folder, how many of its files were not to be read. `tell` is given each
    name that is looked at. Raises UsageError for a file that is not there, a folder without any
    source, and, before it looks, for the whole machine or home folder; HostProblem.
    """
    for path in given:
        _require_project(path)
    names: dict[str, None] = {}
    unread: dict[str, int] = {}
    for path in given:
        if Path(path).is_dir():
            found, unread[path] = _below(path, tell)
            names |= dict.fromkeys(found)
        else:
            names[path] = None
    return {name: _read(name) for name in names}, unread


def require_one_way(way: Way) -> None:
    """Raises UsageError for a `way` that contradicts itself, or names no file."""
    if way.out == "":
        raise UsageError("-o is empty", "Name a file; `-o -` is stdout.")
    if sum((way.out is not None, way.in_place, way.check)) > 1:
        raise UsageError("-o, --in-place and --check exclude each other", "Give one of them.")


def require_sensible(way: Way, sources: tuple[str, ...]) -> None:
    """Raises UsageError for a `way` that is none for these `sources`, or would lose one."""
    if way.out is not None and len(sources) > 1:
        raise UsageError("-o is for one source", "Without it each gets a SOURCE.hip beside it.")
    if way.out is not None and way.out != STDOUT:
        _require_place(Path(way.out), Path(sources[0]))


def _require_place(out: Path, source: Path) -> None:
    if _same(out, source):
        raise UsageError(f"-o {out} is the source", "--in-place replaces it and keeps a copy.")
    if out.exists() and not out.is_file():
        raise UsageError(f"-o {out} is no file", "Name a file; `-o -` is stdout.")


def write_all(results: dict[str, bytes], read: dict[str, bytes], way: Way) -> dict[str, Written]:
    """Write the results of the sources `read`, each whole or not at all; where they are, by source.

    Raises UsageError, before anything is written, when a result would replace a file that holds
    something else, unless `way.force`; HostProblem.
    """
    if way.check:
        return dict.fromkeys(results, Written())
    if way.out == STDOUT:
        _to_stdout(b"".join(results.values()))
        return dict.fromkeys(results, Written(result=STDOUT))
    if not way.in_place and not way.force:
        _refuse_foreign(results, way)
    return {name: _write(name, result, read[name], way) for name, result in results.items()}


def wanted(read: dict[str, bytes], way: Way) -> dict[str, Written]:
    """Where `write_all` would write the results and copies of the sources `read`. Writes nothing.

    Raises UsageError, HostProblem.
    """
    return {name: _wanted(name, source, way) for name, source in read.items()}


def _wanted(name: str, source: bytes, way: Way) -> Written:
    if way.check:
        return Written()
    if way.out == STDOUT:
        return Written(result=STDOUT)
    backup = str(_copy_of(Path(name), source)) if way.in_place else None
    return Written(result=str(way.target(name)), backup=backup)


def _require_project(given: str) -> None:
    """Raises UsageError for a folder that holds the whole home folder, and for an empty name."""
    if not given:
        raise UsageError("a path is empty", "The current folder is `.`.")
    folder, home = Path(given).resolve(), _home()
    if folder == Path("/") or (home is not None and home.is_relative_to(folder)):
        what = "the whole machine" if folder == Path("/") else "your whole home folder"
        raise UsageError(f"{given} holds {what}", "Name the folder of a project in it.")


def _home() -> Path | None:
    try:
        return Path.home().resolve()
    except RuntimeError:  # this user has none
        return None


def _below(folder: str, tell: Tell) -> tuple[list[str], int]:
    """The sources with CUDA below `folder`, and how many of its files were not to be read."""
    from zluda_stack.port.folder import read_folder
    from zluda_stack.port.hipify import is_to_convert

    _require_readable(folder)
    files = read_folder(Path(folder), tell)
    found = [str(Path(folder, name)) for name, text in files.sources if is_to_convert(name, text)]
    if not found:
        unread = f"; not read: {files.unread} of its files and folders" if files.unread else ""
        raise UsageError(
            f"there is no CUDA source in {folder}{unread}", "Name the files themselves."
        )
    return found, files.unread


def _require_readable(folder: str) -> None:
    try:
        os.scandir(folder).close()
    except OSError as error:
        raise _unreadable(folder, error) from error


def _read(name: str) -> bytes:
    """The text of the file. What is none, such as a pipe, a device or a program, is not read."""
    from zluda_stack.port.folder import LARGEST

    hint = "Give the path of a CUDA source."
    try:
        status = Path(name).stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            raise UsageError(f"{name} is no file of at most {LARGEST >> 20} MiB", hint)
        text = Path(name).read_bytes()
    except FileNotFoundError as error:
        raise UsageError(f"there is no {name}", hint) from error
    except OSError as error:
        raise _unreadable(name, error) from error
    if b"\0" in text:
        raise UsageError(f"{name} is no text", hint)
    return text


def _unreadable(name: str, error: OSError) -> HostProblem:
    return HostProblem(f"cannot read {name}: {error.strerror}", "Check its owner.")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _to_stdout(whole: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(whole)
    sys.stdout.buffer.flush()


def _refuse_foreign(results: dict[str, bytes], way: Way) -> None:
    for name, result in results.items():
        target = way.target(name)
        if target.exists() and _read(str(target)) != result:
            raise UsageError(
                f"{target} is there, and holds something else",
                "Overwrite it with --force, or name another with -o.",
            )


def _write(name: str, result: bytes, source: bytes, way: Way) -> Written:
    from zluda_stack.files import write_atomic

    target, mode = way.target(name), stat.S_IMODE(os.stat(name).st_mode)  # noqa: PTH116
    backup = _keep(Path(name), source, mode) if way.in_place else None
    write_atomic(target, result, mode=mode)
    return Written(result=str(target), backup=backup)


def _keep(path: Path, source: bytes, mode: int) -> str:
    """A copy of the source that is about to be replaced; its name."""
    from zluda_stack.files import write_atomic

    copy = _copy_of(path, source)
    write_atomic(copy, source, mode=mode)
    return str(copy)


def _copy_of(path: Path, source: bytes) -> Path:
    """Where a copy of the source goes, so that one of another text stays."""
    copy, number = path.with_name(path.name + _BACKUP), 1
    while copy.exists() and _read(str(copy)) != source:
        number += 1
        copy = path.with_name(f"{path.name}{_BACKUP}.{number}")
    return copy
