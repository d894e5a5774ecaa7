"""Programs with CUDA code, damaged at random: what a fuzzer gives to `check`."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from tests.unit import fat_binaries
from tests.unit.cuda_programs import cubin, library, module, ptx
from tests.unit.fat_binaries import container
from zluda_stack.catalog import coverage, cuda
from zluda_stack.check.closure import Given, needs
from zluda_stack.check.facts import FileFacts
from zluda_stack.check.inspect import World, inspect
from zluda_stack.check.judge import Basis, Judged, judge

_WMMA = "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1, %r2}, [%rd1], %r9; ret;"
_PLACES = st.one_of(st.floats(0, 1), st.floats(0, 0.02), st.floats(0.9, 1))
_VALUES = st.one_of(
    st.binary(min_size=1, max_size=8),
    st.sampled_from([b"\xff" * 4, b"\xff" * 8, b"\0" * 8, b"\xff" * 7 + b"\x7f", b"\x7fELF"]),
    st.sampled_from([b".version 8.0\n.target sm_80", b"\x50\xed\x55\xba\x01\x00\x10\x00"]),
)
# How many bytes of a file are kept, and what is written over them where.
Damage = tuple[float, list[tuple[float, bytes]]]
damages: st.SearchStrategy[Damage] = st.tuples(
    st.one_of(st.just(1.0), st.just(1.0), st.floats(0, 1)),
    st.lists(st.tuples(_PLACES, _VALUES), max_size=6),
)


def originals(folder: Path) -> list[bytes]:
    """A library with code of every kind in it, a bare fat binary, and PTX."""
    code = container(
        module(),
        module(_WMMA, sm=86, flags=fat_binaries.LZ4),
        module(sm=90, flags=fat_binaries.ZSTD),
        cubin("_Z3addPf"),
    )
    path = library(
        folder / "libcode.so",
        code,
        container(cubin("k")),
        imports=["cublasSgemm_v2", "cublasStrsmBatched", "cudaMalloc"],
        needed=["libcublas.so.12", "libcudart.so.12"],
        words=["libnccl.so.2", "cuInit"],
        runpath="$ORIGIN/lib",
    )
    return [path.read_bytes(), code, ptx(_WMMA)]


def damaged(raw: bytes, damage: Damage) -> bytes:
    """`raw` with that damage done to it."""
    kept, changes = damage
    changed = bytearray(raw)
    for place, value in changes:
        start = int(place * (len(raw) - 1))
        changed[start : start + len(value)] = value
    return bytes(changed[: int(kept * len(changed))])


class Checker:
    """`check` on one file, without the command line and the demangler."""

    def __init__(self) -> None:
        covered, libraries = coverage.load(), cuda.cuda_libraries()
        self._world = World.of(covered, libraries, cuda.zluda_code())
        self._basis = Basis(covered, libraries, 85, lambda _: {})

    def check(self, path: Path) -> Judged:
        """The gaps and the verdict of the file at `path`."""
        facts: FileFacts = inspect(self._world, path, path.name)
        given = Given.of([facts], {})
        needed = needs(self._basis.coverage, self._basis.libraries, facts, given)
        return judge(self._basis, facts, needed, asked=True)
