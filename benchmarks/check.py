"""How fast `zluda-stack check` is beside cuobjdump, and whether 100,000 damaged files stop it.

    python -m benchmarks.check speed LIBRARY CUOBJDUMP
    python -m benchmarks.check fuzz [NUMBER]

LIBRARY is a large CUDA library, such as libcublasLt.so of the package nvidia-cublas, CUOBJDUMP the
program of nvidia-cuda-cuobjdump. The exit code is 1 when a limit is exceeded. The limits are of CPU
time, for both programs use one core and a machine with other work says nothing by its clock.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.cuda_programs import library, module
from tests.unit.damaged_programs import Checker, Damage, damaged, damages, originals
from tests.unit.fat_binaries import container

_SECONDS_A_GIGABYTE = 15.0
_MEGABYTES = 600.0
_SECONDS_SMALL = 0.5
_SECONDS_ONE_DAMAGED = 5.0
_PROGRAM = str(Path(sys.executable).with_name("zluda-stack"))


def speed(large: Path, cuobjdump: Path) -> bool:
    """Check `large` and a small library, extract all PTX of `large`; True within the limits."""
    size = large.stat().st_size / 1e9
    with large.open("rb") as handle:  # from the disk now, and from memory for both
        while handle.read(1 << 20):
            pass
    ours, wall, memory = _run([_PROGRAM, "check", "--json", str(large)])
    with tempfile.TemporaryDirectory() as folder:
        command = [str(cuobjdump.resolve()), "-xptx", "all", str(large.resolve())]
        theirs, their_wall, _ = _run(command, folder)
        extracted = sum(file.stat().st_size for file in Path(folder).iterdir())
        small = library(Path(folder) / "libsmall.so", container(module()))
        quick = min(_run([_PROGRAM, "check", "--json", str(small)])[0] for _ in range(5))
    print(f"{large.name}: {size:.2f} GB, {extracted / 1e6:.0f} MB of PTX text in it")
    print(f"check                  {ours:7.2f} s CPU ({wall:.2f} s by the clock)", end="")
    print(f", {ours / size:.1f} s a GB, {memory:.0f} MB")
    print(f"cuobjdump -xptx all    {theirs:7.2f} s CPU ({their_wall:.2f} s by the clock)")
    print(f"check / cuobjdump      {ours / theirs:7.2f}")
    print(f"check, a small library {quick:7.2f} s CPU")
    within = ours / size <= _SECONDS_A_GIGABYTE and memory <= _MEGABYTES
    return within and quick <= _SECONDS_SMALL


def _run(command: list[str], folder: str | None = None) -> tuple[float, float, float]:
    """The CPU and the wall time of `command` in seconds, and the most memory it took, in MB."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    wall = time.perf_counter() - start
    return usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1e3


def fuzz(number: int) -> bool:
    """Check `number` damaged files; True when each has a verdict within its time."""
    checker = Checker()
    slowest = 0.0
    verdicts: dict[str, int] = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        wholes = originals(Path(folder))
        path = Path(folder) / "program"

        @given(damage=damages, which=st.integers(0, 2))
        @settings(
            max_examples=number,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def one(damage: Damage, which: int) -> None:
            nonlocal slowest
            path.write_bytes(damaged(wholes[which], damage))
            start = time.process_time()
            found = checker.check(path)
            slowest = max(slowest, time.process_time() - start)
            verdicts[found.verdict.value] = verdicts.get(found.verdict.value, 0) + 1

        one()
    print(f"{sum(verdicts.values())} damaged files, the slowest took {slowest:.2f} s of CPU time")
    for verdict, count in sorted(verdicts.items()):
        print(f"  {verdict:<20} {count}")
    return slowest <= _SECONDS_ONE_DAMAGED


def main(words: list[str]) -> int:
    """Run one part; returns the exit code."""
    if len(words) == 3 and words[0] == "speed":
        return 0 if speed(Path(words[1]), Path(words[2])) else 1
    if 1 <= len(words) <= 2 and words[0] == "fuzz":
        return 0 if fuzz(int(words[1]) if len(words) == 2 else 100_000) else 1
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
