"""The kernels that rocprofv3 counted, of this bench or another."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from zluda_stack.cli import output
from zluda_stack.errors import EngineFailure, HostProblem, StackError, UsageError
from zluda_stack.files import children

if TYPE_CHECKING:
    from zluda_stack.bench.measure import Target
    from zluda_stack.bench.rocprof import Kernel
    from zluda_stack.bench.saved import Run


def new_folder(folder: Path) -> Path:
    """`folder`, in which nothing is yet. Raises UsageError, HostProblem."""
    try:
        there = children(folder)
    except OSError as error:
        raise HostProblem(
            f"cannot read {folder}: {error.strerror}", "Name a folder that is yours."
        ) from error
    if there or (folder.exists() and not folder.is_dir()):
        raise UsageError(
            f"{folder} is there already",
            "Name a new folder: what was counted before would be taken for this bench's.",
        )
    return folder


def make(folder: Path) -> None:
    """Make `folder` before hours are spent on what it is for. Raises HostProblem."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostProblem(
            f"cannot make {folder}: {error.strerror}", "Name a folder that is yours."
        ) from error


@dataclass
class Counted:
    """The kernels of each target that was measured under rocprofv3, and whose are lost, and why."""

    kernels: dict[str, tuple[Kernel, ...]] = field(default_factory=dict)
    lost: list[StackError] = field(default_factory=list)


def counted(targets: list[Target], run: Run) -> Counted:
    """What was counted in the bench `run`; nothing of targets without rocprofv3."""
    from zluda_stack.bench import rocprof
    from zluda_stack.bench.targets import RocprofTarget

    found = Counted()
    for one in targets:
        if isinstance(one, RocprofTarget) and one.name in run.names:
            try:
                found.kernels[one.name] = rocprof.collect(one.folder)
            except EngineFailure as error:
                problem = f"the kernels of {one.name} are lost: {error.message}"
                found.lost.append(EngineFailure(problem, error.hint))
    return found


def table(kernels: tuple[Kernel, ...]) -> None:
    """Print the longest of `kernels`."""
    from zluda_stack.bench import rocprof

    output.table(rocprof.COLUMNS, rocprof.rows(kernels))


def tell_counted(targets: tuple[str, ...], folder: Path, *, as_json: bool) -> None:
    """Print the kernels that were counted into `folder` some time ago."""
    from zluda_stack.bench import rocprof

    if targets:
        raise UsageError("--kernels measures nothing, so it takes no targets", "Leave one out.")
    kernels = rocprof.collect(folder)
    if as_json:
        output.print_json(kernels)
    else:
        table(kernels)
