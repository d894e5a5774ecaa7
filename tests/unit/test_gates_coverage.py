"""Gates `symbols` and `opcodes`, on programs that really import and really compute."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit import fat_binaries
from tests.unit.cuda_toolkit import Toolkit
from zluda_stack.catalog import coverage as covered
from zluda_stack.errors import UsageError
from zluda_stack.gates import coverage
from zluda_stack.gates.verdict import Verdict

SERVER = """
int cublasCreate_v2(void); int cublasStrsmBatched(void); int cublasSgemmBatched(void);
int serve(void) { return cublasCreate_v2() + cublasStrsmBatched() + cublasSgemmBatched(); }
"""
MISSING = ("cublasSgemmBatched", "cublasStrsmBatched")
WMMA = b".version 9.0\n.target sm_86\n.entry attention() { wmma.load.a x; wmma.mma y; ret; }\n"
PLAIN = b".version 9.0\n.target sm_86\n.entry add() { add.f32 x, y, z; ret; }\n"


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A library that imports three functions of cuBLAS, of which ZLUDA has one."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    path = tmp_path / "libserver.so"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=SERVER, text=True, check=True)
    return path


def symbols(*files: Path, accepted: tuple[str, ...] = ()) -> Verdict:
    return coverage.check_symbols(files, coverage=covered.load(), accepted=accepted)


def opcodes(*files: Path, accepted: tuple[str, ...] = ()) -> Verdict:
    said: list[str] = []
    return coverage.check_opcodes(
        files, coverage=covered.load(), accepted=accepted, progress=said.append
    )


def test_functions_that_zluda_lacks_are_named_with_who_imports_them(server: Path) -> None:
    verdict = symbols(server)
    assert verdict.reason == (
        "ZLUDA lacks 2 CUDA functions of those imported: cublasSgemmBatched, cublasStrsmBatched"
    )
    assert [found.problem for found in verdict.findings] == [
        "not implemented in libcublas.so, used by libserver.so"
    ] * 2
    assert verdict.checked == 3


def test_accepted_names_let_the_build_pass_and_are_still_listed(server: Path) -> None:
    verdict = symbols(server, accepted=MISSING)
    assert verdict.reason is None
    assert [found.accepted for found in verdict.findings] == [True, True]
    assert verdict.summary == "1 of 3 CUDA functions are covered by ZLUDA"


def test_a_name_that_need_not_be_accepted_any_more_is_said(server: Path) -> None:
    verdict = symbols(server, accepted=(*MISSING, "cublasCreate_v2"))
    assert verdict.summary.endswith("no longer to be accepted: cublasCreate_v2")


def test_a_program_that_imports_nothing_of_cuda_passes(toolkit: Toolkit) -> None:
    verdict = symbols(toolkit.build("all compressed, shared cudart"))
    assert verdict.reason is None
    assert verdict.checked == 0


def test_what_is_no_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kernel.ptx").write_bytes(PLAIN)
    with pytest.raises(UsageError, match="is not an ELF file"):
        symbols(tmp_path / "kernel.ptx")


def test_an_opcode_that_zluda_lacks_is_named_with_its_module(tmp_path: Path) -> None:
    program = tmp_path / "program.fatbin"
    program.write_bytes(
        fat_binaries.container(fat_binaries.entry(PLAIN), fat_binaries.entry(WMMA, sm=86))
    )
    verdict = opcodes(program)
    assert verdict.reason == "ZLUDA lacks 1 opcode of those in 2 modules: wmma"
    (found,) = verdict.findings
    assert found.problem == "2 uses in 1 module, such as program.fatbin#1.2:sm_86"
    assert opcodes(program, accepted=("wmma",)).reason is None


def test_the_opcodes_of_what_nvcc_builds_are_all_known(toolkit: Toolkit) -> None:
    verdict = opcodes(toolkit.build("several architectures"))
    assert verdict.reason is None
    assert verdict.facts["modules"] == 4
