"""Rendered files as a folder that holds them and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

from zluda_stack.errors import HostProblem
from zluda_stack.render.project import write_project


def mirror(files: dict[str, str], folder: Path) -> None:
    """Make `folder` hold `files` (path -> text) and nothing of an earlier rendering.

    A file that is the same already is not touched. Raises HostProblem.
    """
    write_project(files, folder, force=True)
    kept = {folder / name for name in files} | {
        parent for name in files for parent in (folder / name).parents
    }
    try:
        for path in sorted(folder.rglob("*"), reverse=True):
            if path not in kept and path.parent != folder:  # at the top lies the writer's record
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    except OSError as error:
        raise HostProblem(
            f"cannot tidy {folder}: {error.strerror}", "Check the folder's owner."
        ) from error


def holds(files: dict[str, str], folder: Path) -> bool:
    """True when `folder` holds every one of `files` with exactly this text."""
    try:
        return all((folder / name).read_text() == text for name, text in files.items())
    except (OSError, UnicodeDecodeError):
        return False


def replace(folder: Path, by: Path) -> None:
    """Put the folder `by` in the place of `folder`."""
    shutil.rmtree(folder)
    by.rename(folder)
