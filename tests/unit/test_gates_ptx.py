"""Gate `ptx`: real modules through a compiler that is a fake, since ZLUDA's is not here."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.unit import fat_binaries
from tests.unit.cuda_toolkit import Toolkit
from zluda_stack.errors import HostProblem, StackError, UsageError
from zluda_stack.gates import ptx
from zluda_stack.gates.verdict import Finding, Verdict

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="fake-zoc needs gcc")
pytestmark = needs_gcc

FAKE_ZOC = (sys.executable, str(Path(__file__).parent / "fakes" / "fake-zoc"))


def module(kernel: str, body: str = "ret;") -> bytes:
    return (
        f".version 9.0\n.target sm_80\n.address_size 64\n.visible .entry {kernel}() {{ {body} }}\n"
    ).encode()


def write(folder: Path, *kernels: str) -> list[Path]:
    paths = [folder / f"{kernel}.ptx" for kernel in kernels]
    for path in paths:
        path.write_bytes(module(path.stem))
    return paths


def run(
    files: list[Path],
    *,
    budget: int = 0,
    seconds: int = 60,
    compiler: tuple[str, ...] = FAKE_ZOC,
    said: list[str] | None = None,
) -> Verdict:
    return ptx.check(
        files,
        compiler=compiler,
        target="gfx1100",
        jobs=2,
        seconds=seconds,
        budget=budget,
        progress=(said if said is not None else []).append,
    )


def test_every_module_of_a_program_is_compiled_and_counted(toolkit: Toolkit) -> None:
    verdict = run([toolkit.build("several architectures")])
    assert verdict.reason is None
    assert verdict.checked == 4
    assert verdict.facts["kernels"] == 8
    assert verdict.summary == "4 of 4 modules compile for gfx1100"


def test_a_module_that_does_not_compile_is_named_with_its_kernel_and_the_first_error(
    tmp_path: Path,
) -> None:
    bad = tmp_path / "attention.ptx"
    bad.write_bytes(module("attention", "wmma.load.a.sync.aligned {%r1}, [%rd1]; ret;"))
    verdict = run([*write(tmp_path, "good"), bad])
    assert verdict.reason == "1 of 2 modules do not fully compile for gfx1100, the budget is 0"
    assert verdict.findings == (
        Finding(
            "attention.ptx",
            "Error: PtxError::UnrecognizedStatement: wmma.load.a.sync",
            detail="attention",
        ),
    )


@pytest.mark.parametrize(
    ("kernel", "problem"),
    [
        (
            "panics",
            "thread 'main' panicked at ptx/src/pass/mod.rs:12:9: not yet implemented: sin.full",
        ),
        ("crashes", "the compiler was ended by SIGSEGV"),
        ("hangs", "is not compiled within 1 s"),
        ("aborts", "LLVM ERROR: unsupported library call operation"),
        ("leaves_nothing", "the compiler left no code for the card"),
    ],
)
def test_each_way_to_fail_is_told(tmp_path: Path, kernel: str, problem: str) -> None:
    verdict = run(write(tmp_path, kernel), seconds=1)
    assert [found.problem for found in verdict.findings] == [problem]
    assert verdict.reason is not None


def test_a_broken_output_is_told(tmp_path: Path) -> None:
    (found,) = run(write(tmp_path, "leaves_rubbish")).findings
    assert found.problem.startswith("the compiler left a broken file: ")


def test_a_kernel_that_the_compiler_leaves_out_fails_its_module(tmp_path: Path) -> None:
    text = module("add") + b".entry attention() { wmma.mma.sync a; ret; }\n"
    (tmp_path / "two.ptx").write_bytes(text)
    verdict = run([tmp_path / "two.ptx"], compiler=(*FAKE_ZOC, "--ignore-errors"))
    assert verdict.reason is not None
    (found,) = verdict.findings
    assert found.problem == "1 of 2 kernels left out: attention"


def test_the_budget_lets_failures_pass_and_asks_to_be_lowered(tmp_path: Path) -> None:
    files = write(tmp_path, "good", "panics")
    exact, wide = run(files, budget=1), run(files, budget=3)
    assert exact.reason is None
    assert wide.reason is None
    assert all(found.accepted for found in exact.findings)
    assert "budget" not in exact.summary
    assert wide.summary.endswith("lower the budget from 3 to 1")


def test_equal_modules_are_compiled_once_and_each_counted(tmp_path: Path) -> None:
    program = tmp_path / "program.fatbin"
    same = fat_binaries.entry(module("panics"), flags=fat_binaries.ZSTD)
    program.write_bytes(fat_binaries.container(same, same))
    verdict = run([program])
    assert verdict.facts["distinct"] == 1
    assert [found.subject for found in verdict.findings] == [
        "program.fatbin#1.1:sm_80",
        "program.fatbin#1.2:sm_80",
    ]


def test_a_module_that_cannot_be_unpacked_counts_as_failed(tmp_path: Path) -> None:
    program = tmp_path / "program.fatbin"
    lying = fat_binaries.entry(module("k"), flags=fat_binaries.LZ4, unpacked=5)
    program.write_bytes(fat_binaries.container(lying, fat_binaries.entry(module("k"))))
    verdict = run([program])
    assert verdict.checked == 2
    assert "cannot be unpacked" in verdict.findings[0].problem


def test_a_program_without_ptx_does_not_pass(tmp_path: Path) -> None:
    program = tmp_path / "program.fatbin"
    program.write_bytes(
        fat_binaries.container(fat_binaries.entry(b"\x7fELF", kind=fat_binaries.CUBIN))
    )
    assert run([program]).reason == f"there is no PTX in {program}"


def test_kernels_of_one_template_are_told_as_one_with_their_number(tmp_path: Path) -> None:
    names = ["_Z3addIfEvPT_", "_Z3addIiEvPT_", "scale", "_Z5mergePfS_", "last"]
    text = module("panics") + b"".join(b".entry %s() { ret; }\n" % n.encode() for n in names)
    (tmp_path / "many.ptx").write_bytes(text)
    (found,) = run([tmp_path / "many.ptx"]).findings
    assert found.detail == "add (x2), panics, scale and 2 more"


def test_failures_are_said_while_the_others_still_compile(tmp_path: Path) -> None:
    said: list[str] = []
    run(write(tmp_path, "panics", "crashes"), said=said)
    assert said[0] == "ptx: reading 2 modules"
    assert [line.split()[1] for line in said[1:]] == ["1/2", "2/2"]
    assert {line.split()[-1] for line in said[1:]} == {"panics.ptx", "crashes.ptx"}


def test_a_compiler_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(HostProblem, match="cannot run /nowhere/zoc: No such file"):
        run(write(tmp_path, "good"), compiler=("/nowhere/zoc",))


def test_a_file_that_holds_no_ptx_by_its_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UsageError, match="is not an ELF file"):
        run([tmp_path / "notes.txt"])
    with pytest.raises(StackError, match="absent"):
        run([tmp_path / "absent"])
