"""Whatever is wrong with a file, `check` has a verdict, in bounded time and memory."""

from __future__ import annotations

import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.cuda_programs import needs_compiler
from tests.unit.damaged_programs import Checker, Damage, damaged, damages, originals
from zluda_stack.check.judge import Verdict

MEBIBYTE = 1 << 20
SECTIONS = 100_000


@pytest.fixture(scope="module")
def checker() -> Checker:
    return Checker()


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    return originals(tmp_path_factory.mktemp("whole"))


@needs_compiler
@given(damage=damages, which=st.integers(0, 2))
@settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_damage_gets_a_verdict_within_bounds(
    checker: Checker, wholes: list[bytes], tmp_path: Path, damage: Damage, which: int
) -> None:
    path = tmp_path / "program"
    path.write_bytes(damaged(wholes[which], damage))
    tracemalloc.start()
    found = checker.check(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * MEBIBYTE
    assert found.facts.problem is None or found.verdict in {Verdict.UNJUDGED, Verdict.CANNOT}
    assert all(gap.text and gap.fix for gap in found.gaps)


@needs_compiler
def test_undamaged_they_have_the_gaps_that_were_put_in(
    checker: Checker, wholes: list[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "program"
    path.write_bytes(wholes[0])
    ids = {gap.id for gap in checker.check(path).gaps}
    assert ids == {"ZSC204", "ZSC301", "ZSC306"}


@pytest.mark.timeout(120)
def test_a_hundred_thousand_sections_are_read_in_bounded_time(
    checker: Checker, tmp_path: Path
) -> None:
    names = b"\0.s\0.shstrtab\0"
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        *(b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, 64 + len(names), 0, 64, 56, 0, 64, 0, 1),
    )
    first = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, SECTIONS, 0, 0, 0, 0)
    strings = struct.pack("<IIQQQQIIQQ", 4, 3, 0, 0, 64, len(names), 0, 0, 1, 0)
    rest = struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 64, 4, 0, 0, 1, 0) * (SECTIONS - 2)
    path = tmp_path / "many"
    path.write_bytes(header + names + first + strings + rest)
    start = time.process_time()
    found = checker.check(path)
    assert found.verdict in {Verdict.NO_CUDA, Verdict.UNJUDGED}
    assert time.process_time() - start < 60
