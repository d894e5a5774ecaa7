"""ZLUDA's coverage: the data, and what real and small programs use beyond it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zluda_stack.catalog import coverage as covered
from zluda_stack.catalog.coverage import Coverage
from zluda_stack.catalog.load import load
from zluda_stack.cuda import coverage as covering
from zluda_stack.cuda import ptx
from zluda_stack.cuda.coverage import Support, SymbolUse
from zluda_stack.cuda.elf import Elf, Import
from zluda_stack.errors import StackError


@pytest.fixture(scope="module")
def known() -> Coverage:
    return covered.load()


def program(*imports: Import, needed: tuple[str, ...] = ()) -> Elf:
    return Elf(
        path="server",
        machine="x86_64",
        bits=64,
        kind="executable",
        soname=None,
        interpreter=None,
        needed=needed,
        rpath=None,
        runpath=None,
        imports=imports,
        exports=(),
        sections=(),
    )


def uses(known: Coverage, *imports: Import, needed: tuple[str, ...] = ()) -> list[SymbolUse]:
    return list(covering.cuda_symbols(known, program(*imports, needed=needed)))


def test_the_coverage_is_of_the_zluda_that_the_images_build(known: Coverage) -> None:
    git = load().components["zluda"].git
    assert git is not None
    assert known.zluda_commit == git.commit


def test_a_function_is_looked_up_in_the_library_that_its_version_names(known: Coverage) -> None:
    assert uses(
        known,
        Import("cublasSgemm_v2", "libcublas.so.13"),
        Import("cublasStrsmBatched", "libcublas.so.13"),
        Import("cudaMalloc", "libcudart.so.13"),
        Import("cos", "libm.so.6"),
    ) == [
        SymbolUse("cublasSgemm_v2", "libcublas.so", Support.IMPLEMENTED),
        SymbolUse("cublasStrsmBatched", "libcublas.so", Support.NOT_IMPLEMENTED),
    ]


def test_a_function_without_a_version_is_found_by_its_name(known: Coverage) -> None:
    assert uses(known, Import("cuInit"), needed=("libcuda.so.1",)) == [
        SymbolUse("cuInit", "libcuda.so.1", Support.IMPLEMENTED)
    ]


def test_the_needed_library_answers_for_a_name_that_two_have(known: Coverage) -> None:
    for soname in ("libcudnn.so.8", "libcudnn.so.9"):
        (use,) = uses(known, Import("cudnnCreate"), needed=(soname,))
        assert use.library == soname


def test_a_cuda_function_that_zluda_never_heard_of_is_told(known: Coverage) -> None:
    assert uses(known, Import("cuFlyToTheMoon"), Import("cublasDream", "libcublas.so.13")) == [
        SymbolUse("cuFlyToTheMoon", None, Support.UNKNOWN),
        SymbolUse("cublasDream", "libcublas.so", Support.UNKNOWN),
    ]


def test_a_name_that_is_asked_with_and_without_a_version_counts_for_both(known: Coverage) -> None:
    found = uses(known, Import("cuDream", "libcublas.so.13"), Import("cuDream"))
    assert [use.library for use in found] == [None, "libcublas.so"]


def test_what_is_no_cuda_function_is_not_counted(known: Coverage) -> None:
    assert uses(known, Import("cudaLaunchKernel"), Import("curl_easy_init"), Import("cut")) == []


def test_opcodes_outside_the_parsers_list_are_counted(known: Coverage) -> None:
    text = b".version 9.0\n.target sm_86\n.entry k() { wmma.mma.sync a; wmma.x b; mov.u32 c; ret; }"
    module = ptx.parse(text, name="a module")
    assert covering.unknown_opcodes(known, module) == {"wmma": 2}


@pytest.fixture
def raw(known: Coverage) -> dict[str, Any]:
    return {
        "zluda_commit": known.zluda_commit,
        "zluda_date": known.zluda_date,
        "libraries": {
            "libx.so": {
                "declared": 2,
                "implemented": ["a"],
                "unmatched": [],
                "not_implemented": ["b"],
            }
        },
        "ptx_opcodes_parsed": ["mov"],
        "note": "",
    }


def written(tmp_path: Path, raw: dict[str, Any]) -> Path:
    path = tmp_path / "coverage.json"
    path.write_text(json.dumps(raw))
    return path


def test_a_coverage_of_ones_own_can_be_loaded(tmp_path: Path, raw: dict[str, Any]) -> None:
    assert covered.load(written(tmp_path, raw)).libraries["libx.so"].implemented == {"a"}


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("zluda_commit", "main", "zluda_commit"),
        ("surprise", 1, "surprise"),
        ("libraries", {"libx.so": {"declared": 1}}, "implemented"),
        (
            "libraries",
            {
                "libx.so": {
                    "declared": 2,
                    "implemented": ["a"],
                    "unmatched": [],
                    "not_implemented": ["a"],
                }
            },
            "both has and lacks",
        ),
        (
            "libraries",
            {
                "libx.so": {
                    "declared": 3,
                    "implemented": ["a"],
                    "unmatched": [],
                    "not_implemented": [],
                }
            },
            "declares 3 functions",
        ),
    ],
)
def test_a_coverage_that_does_not_fit_is_refused_with_its_place(
    tmp_path: Path, raw: dict[str, Any], key: str, value: object, problem: str
) -> None:
    with pytest.raises(StackError, match=problem) as refused:
        covered.load(written(tmp_path, raw | {key: value}))
    assert "coverage.json" in refused.value.message


def test_a_coverage_that_is_not_there_or_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.json").write_text("hello")
    for name in ("absent.json", "text.json"):
        with pytest.raises(StackError, match=name):
            covered.load(tmp_path / name)
