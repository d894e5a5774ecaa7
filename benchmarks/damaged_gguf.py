"""Damaged GGUF headers: each is computed or refused, in little time and memory.

`python -m benchmarks.damaged_gguf [COUNT] [SEED]` damages the headers of nine architectures at
random places, also cuts the files, and ends with an error for anything but a model or a refusal.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.unit.gguf_shapes import SHAPES, write_shape
from zluda_stack.models.architecture import read_architecture
from zluda_stack.models.fit import Serving, largest_context, needs
from zluda_stack.models.gguf_reader import BadGguf

_HEAD_BYTES = 60_000
_PLACES = (60, 1_500, _HEAD_BYTES)  # magic and counts; keys; tensors
_CARD = 24 * 2**30


def _damaged(chance: random.Random, head: bytes, size: int) -> tuple[bytes, int]:
    """A header with one to eight damages, and the size of its file in bytes."""
    data = bytearray(head)
    last = min(chance.choice(_PLACES), len(data))
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(4, last)
        wrong = chance.choice((chance.randbytes(1), chance.randbytes(4), b"\xff" * 8, bytes(4)))
        data[at : at + len(wrong)] = wrong
    if chance.random() < 0.2:
        size = chance.randrange(24, size)
    return bytes(data[:size]), size


def _read(path: Path) -> str:
    try:
        model = read_architecture(path)
    except BadGguf:
        return "refused"
    needs(model, Serving(context=32768))
    largest_context(model, Serving(context=4096), _CARD)
    return "computed"


def main() -> None:
    """Print how many were computed and refused, the slowest in seconds, and the memory in MB."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    chance = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)  # noqa: S311
    found: Counter[str] = Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        paths = [write_shape(Path(folder) / name, shape) for name, shape in SHAPES.items()]
        wholes = [(path.open("rb").read(_HEAD_BYTES), path.stat().st_size) for path in paths]
        file = Path(folder) / "damaged.gguf"
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(count):
            data, size = _damaged(chance, *chance.choice(wholes))
            with file.open("wb") as handle:
                handle.write(data)
                handle.truncate(size)
            began = time.perf_counter()
            found[_read(file)] += 1
            slowest = max(slowest, time.perf_counter() - began)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000
    print(f"{count} damaged headers: {found['computed']} computed, {found['refused']} refused")
    print(f"slowest {slowest:.2f} s, memory grew by {grown:.0f} MB")


if __name__ == "__main__":
    main()
