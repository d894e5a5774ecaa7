"""The kernels that a program spent its time in, as rocprofv3 counted them.

`rocprofv3 --kernel-trace --stats --output-format csv -d DIR` writes NAME_kernel_stats.csv into DIR
or a folder of it, a line for each kernel: Name, Calls, TotalDurationNs, AverageNs, Percentage,
MinNs, MaxNs, StdDev. The options are those of AMD's guide (https://rocm.docs.amd.com/projects/
rocprofiler-sdk/en/amd-mainline/how-to/using-rocprofv3.html), the columns those that public profiles
of it have; both looked up on 2026-12-01. No card was here to make one with.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from msgspec import Struct

from zluda_stack.errors import EngineFailure

COLUMNS = ("share", "time", "calls", "each", "kernel")
_ENDING = "_kernel_stats.csv"
_NEEDED = ("Name", "Calls", "TotalDurationNs", "Percentage")


class Kernel(Struct, frozen=True, kw_only=True):
    """One kernel: how often it ran, the nanoseconds that all its runs took, and their share."""

    name: str
    calls: int
    total_ns: int
    percent: float


def parse(text: str) -> tuple[Kernel, ...]:
    """The kernels of one file, the longest first. Raises ValueError for another kind of file."""
    reader = csv.DictReader(io.StringIO(text))
    if not set(_NEEDED) <= set(reader.fieldnames or ()):
        raise ValueError(f"it has no columns {', '.join(_NEEDED)}")
    try:
        found = [
            Kernel(
                name=row["Name"],
                calls=int(row["Calls"]),
                total_ns=int(row["TotalDurationNs"]),
                percent=float(row["Percentage"]),
            )
            for row in reader
        ]
    except (TypeError, ValueError) as error:
        raise ValueError(f"line {reader.line_num} is cut off or no numbers") from error
    return tuple(sorted(found, key=lambda one: one.total_ns, reverse=True))


def collect(folder: Path) -> tuple[Kernel, ...]:
    """The kernels of all processes that wrote into `folder`, the longest first.

    Raises EngineFailure where there is nothing, or nothing that can be read.
    """
    files = sorted(folder.rglob(f"*{_ENDING}"))
    if not files:
        raise EngineFailure(
            f"there is no *{_ENDING} in {folder}",
            "rocprofv3 writes it when the program ends in order; docs/bench.md has the command. It "
            "needs an AMD card.",
        )
    together: dict[str, Kernel] = {}
    for file in files:
        try:
            kernels = parse(file.read_text())
        except (OSError, ValueError) as error:
            raise EngineFailure(f"{file} cannot be read: {error}") from error
        for kernel in kernels:
            together[kernel.name] = _added(together.get(kernel.name), kernel)
    whole = sum(one.total_ns for one in together.values()) or 1
    shared = (
        Kernel(
            name=one.name,
            calls=one.calls,
            total_ns=one.total_ns,
            percent=100 * one.total_ns / whole,
        )
        for one in together.values()
    )
    return tuple(sorted(shared, key=lambda one: one.total_ns, reverse=True))


def _added(before: Kernel | None, kernel: Kernel) -> Kernel:
    if before is None:
        return kernel
    return Kernel(
        name=kernel.name,
        calls=before.calls + kernel.calls,
        total_ns=before.total_ns + kernel.total_ns,
        percent=0.0,
    )


def rows(kernels: tuple[Kernel, ...], most: int = 15) -> list[tuple[str, ...]]:
    """The first of `kernels` for people."""
    return [
        (
            f"{one.percent:.1f} %",
            f"{one.total_ns / 1e6:.1f} ms",
            str(one.calls),
            f"{one.total_ns / max(1, one.calls) / 1e3:.1f} us",
            one.name,
        )
        for one in kernels[:most]
    ]
