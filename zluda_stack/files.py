"""Files that are written whole or not at all, and what a folder holds."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from zluda_stack.errors import HostProblem


def children(folder: Path) -> list[Path]:
    """What is in `folder`, by name; nothing when it is no folder.

    Raises OSError when it may not be read, where `Path.glob` would show it as empty.
    """
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def require_writable(path: Path) -> None:
    """Raises HostProblem where `write_atomic` could not write `path`, as far as is seen before.

    Nothing is written or made: this is for what comes of hours of work.
    """
    place = os.path.realpath(path)
    folder = os.path.dirname(place)  # noqa: PTH120 -- Path.exists fails in a closed folder
    while not os.path.exists(folder):  # noqa: PTH110
        folder = os.path.dirname(folder)  # noqa: PTH120
    problem = ""
    if os.path.isdir(place):  # noqa: PTH112
        problem = "it is a folder"
    elif not os.path.isdir(folder):  # noqa: PTH112
        problem = f"{folder} is no folder"
    elif not os.access(folder, os.W_OK | os.X_OK):
        problem = f"nothing can be made in {folder}"
    if problem:
        raise HostProblem(f"cannot write {path}: {problem}", "Name a file in a folder of yours.")


def write_atomic(
    path: Path, data: str | bytes, mode: int = 0o644, *, follow_link: bool = True
) -> None:
    """Write `data` to `path` through a temporary file beside it and a rename.

    The file behind a symbolic link is the one that is replaced, or made where it dangles; without
    `follow_link` the link itself is replaced.
    The file never exists with fewer permissions bits than `mode` removed: a secret of mode
    0600 is never readable by others, not even while it is written. Raises HostProblem when the
    folder cannot be made or written.
    """
    raw = data.encode() if isinstance(data, str) else data
    temporary = None
    path = Path(os.path.realpath(path)) if follow_link else path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as handle:
            os.fchmod(handle.fileno(), mode)
            handle.write(raw)
            handle.flush()
            os.fsync(handle.fileno())
        Path(temporary).replace(path)
        temporary = None
    except OSError as error:
        raise HostProblem(
            f"cannot write {path}: {error.strerror}", "Check the folder's owner and free space."
        ) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
