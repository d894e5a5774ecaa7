"""Speed and size of zluda-stack, measured on this machine and printed as one table.

`make bench` runs everything; `python -m benchmarks.run cli` only the named parts. The limits are
the project's own budgets. The exit code is 1 when one is exceeded.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

_PAIRS = 10
_RAMALAMA = "ramalama"
_NO_LIMIT = float("inf")


@dataclass(frozen=True)
class Measure:
    """One row: what was measured, the value, its unit, and the most it may be."""

    what: str
    value: float
    unit: str
    limit: float

    @property
    def within(self) -> bool:
        """True when the value keeps to the limit."""
        return self.value <= self.limit


def cli(home: Path) -> Iterator[Measure]:
    """CPU time of --help beside that of ramalama, in pairs of runs, and that of plan."""
    other = _ramalama(home)
    pairs = [
        (_cpu_seconds([_program(), "--help"]), _cpu_seconds([other, "--help"]))
        for _ in range(_PAIRS)
    ]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    yield Measure("--help, CPU time (ours)", ours, "s", theirs / 2)
    yield Measure("--help, CPU time (ramalama)", theirs, "s", _NO_LIMIT)
    ratio = statistics.median(mine / its for mine, its in pairs)
    yield Measure("--help, CPU time, ours/ramalama by pairs", ratio, "x", 0.5)
    plan = statistics.median(_cpu_seconds([_program(), "plan", "--json"]) for _ in range(_PAIRS))
    yield Measure("plan, CPU time", plan, "s", 0.3)


def stack(home: Path) -> Iterator[Measure]:
    """`up` on an empty store with the download taken apart, a no-op `up`, and memory."""
    download = _wall_seconds([_program(), "models", "pull", "smollm2-135m"])
    yield Measure("models pull smollm2-135m (download)", download, "s", _NO_LIMIT)
    try:
        yield Measure("up besides the download", _wall_seconds([_program(), "up"]), "s", 60)
        again = statistics.median(_wall_seconds([_program(), "up"]) for _ in range(5))
        yield Measure("up, nothing to do", again, "s", 1.0)
        yield from _memory(home)
    finally:
        subprocess.run([_program(), "down"], check=True, stdout=subprocess.DEVNULL)


def _memory(home: Path) -> Iterator[Measure]:
    """Resident memory of the processes of the stack whose state is under `home`."""
    modules = {
        "supervisor": ("zluda_stack.engines.embedded.supervisor", 60.0),
        "endpoint": ("zluda_stack.gateway", 60.0),
        "model server": ("zluda_stack.engines.embedded.inference", _NO_LIMIT),
    }
    for process in psutil.process_iter(["cmdline", "cwd"]):
        for role, (module, limit) in modules.items():
            ours = str(process.info["cwd"]).startswith(str(home))
            if ours and module in (process.info["cmdline"] or ()):
                size = process.memory_info().rss / 1e6
                yield Measure(f"memory of the {role} (RSS)", size, "MB", limit)


def _program() -> str:
    return str(Path(sys.executable).with_name("zluda-stack"))


def _ramalama(home: Path) -> str:
    """ramalama from the package index, in a virtual environment of its own."""
    folder = home / "ramalama"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", _RAMALAMA]
    subprocess.run(pip, check=True)
    return str(folder / "bin" / _RAMALAMA)


def _cpu_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _wall_seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


@contextmanager
def _clean_home() -> Iterator[Path]:
    """A home of its own, so that the user's stacks and models are neither used nor touched."""
    home = Path(tempfile.mkdtemp(prefix="zluda-stack-bench-"))
    for key in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        os.environ[key] = str(home / key.lower())
    os.environ["HOME"] = str(home)
    # A user's Python keeps what it compiled.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main(names: list[str]) -> int:
    """Run the named parts (all when none is named); returns the exit code."""
    parts: dict[str, Callable[[Path], Iterator[Measure]]] = {"cli": cli, "stack": stack}
    measures: list[Measure] = []
    with _clean_home() as home:
        for name in names or parts:
            measures.extend(parts[name](home))
    for row in measures:
        limit = "" if row.limit == _NO_LIMIT else f"at most {row.limit:.3g} {row.unit}"
        verdict = "" if not limit else ("ok" if row.within else "TOO MUCH")
        print(f"{row.what:<45} {row.value:>9.3f} {row.unit:<3} {limit:<18} {verdict}")
    return 0 if all(row.within for row in measures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
