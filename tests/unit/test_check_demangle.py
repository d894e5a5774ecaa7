"""The names of kernels: as people wrote them, and within bounds whatever they are."""

from __future__ import annotations

import time

import pytest

from zluda_stack.check.demangle import demangled


def test_mangled_names_are_told_and_all_others_stay_out() -> None:
    told = demangled(["_Z3addIfEvPKT_S2_PS0_i", "reduce", "_Znonsense", "_Z3addPf"])
    assert told["_Z3addIfEvPKT_S2_PS0_i"] == (
        "void add<float>(float const*, float const*, float*, int)"
    )
    assert told["_Z3addPf"] == "add(float*)"
    assert told["_Znonsense"] == "_Znonsense"
    assert "reduce" not in told


@pytest.mark.timeout(60)
def test_hostile_names_take_no_more_than_their_bounds() -> None:
    """Each pair of template arguments doubles what a short name stands for."""
    doubling = "_Z1fI" + "1aI" * 60 + "i" + "".join(f"S{n}_S{n}_E" for n in range(60)) + "EvT_"
    names = ["_Z1g" + "P" * 4000 + "i", "_Z1f" + "I" * 4000, doubling, "_Z3addPf\n_Z3subPf", "_Z\0"]
    start = time.monotonic()
    assert all(len(plain) <= 4096 for plain in demangled([*names, "_Z3addPf"]).values())
    assert time.monotonic() - start < 40


def test_where_there_is_no_runtime_library_names_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zluda_stack.check.demangle._CHILD", "import ctypes; ctypes.CDLL('absent')")
    assert demangled(["_Z3addPf"]) == {}
