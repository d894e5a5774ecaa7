"""The gates as an image build runs them: a command line, an exit code, a table, a JSON file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_gates_ptx import FAKE_ZOC, module, needs_gcc
from zluda_stack.errors import ExitCode
from zluda_stack.gates.__main__ import main

# What requirements/gates.txt brings, and what msgspec takes only where it is there.
ALLOWED = {"elftools", "lz4", "msgspec", "typing_extensions", "zstandard", "zluda_stack"}
PROGRAM = """
import sys
before = set(sys.modules)
from zluda_stack.gates import __main__
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(new - set(sys.stdlib_module_names)))
"""


def gate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zluda_stack.gates", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def ptx_arguments(folder: Path, kernel: str, *more: str) -> list[str]:
    path = folder / f"{kernel}.ptx"
    path.write_bytes(module(kernel))
    compiler = " ".join(FAKE_ZOC)
    return ["ptx", str(path), "--compiler", compiler, "--target", "gfx1100", *more]


@needs_gcc
def test_a_gate_that_passes_ends_with_zero_and_one_line(tmp_path: Path) -> None:
    done = gate(*ptx_arguments(tmp_path, "good"))
    assert done.returncode == ExitCode.OK
    assert done.stdout == "ptx: 1 of 1 modules compile for gfx1100\n"


@needs_gcc
def test_a_gate_that_does_not_pass_ends_with_its_reason_and_a_table(tmp_path: Path) -> None:
    done = gate(*ptx_arguments(tmp_path, "crashes"))
    assert done.returncode == ExitCode.REFUSED
    assert done.stdout == "  crashes.ptx  the compiler was ended by SIGSEGV\n      crashes\n"
    assert (
        "error: ptx: 1 of 1 modules do not fully compile for gfx1100, the budget is 0"
        in done.stderr
    )
    assert "hint: " in done.stderr


@needs_gcc
def test_the_result_is_written_for_build_info_either_way(tmp_path: Path) -> None:
    written = {}
    for kernel in ("good", "crashes"):
        file = tmp_path / f"{kernel}.json"
        gate(*ptx_arguments(tmp_path, kernel, "--json", str(file)))
        written[kernel] = json.loads(file.read_text())
    assert written["good"]["passed"] is True
    assert written["crashes"]["passed"] is False
    assert written["crashes"]["gate"] == "ptx"
    assert written["crashes"]["facts"]["failed"] == 1


def test_every_gate_runs_from_the_command_line(tmp_path: Path) -> None:
    rocblas = tmp_path / "rocblas"
    rocblas.mkdir()
    for name in ("TensileLibrary_gfx1030.dat", "k_gfx1030.co"):
        (rocblas / name).touch()
    own = Path(str(sys.modules["msgspec._core"].__file__))
    (tmp_path / "kernel.ptx").write_bytes(module("k"))
    for arguments in (
        ["kernels", "--rocblas", str(rocblas), "--target", "gfx1031", "--fallback", "gfx1030"],
        ["size", str(rocblas), "--budget", "1MB"],
        ["libraries", str(own)],
        ["symbols", str(own), "--accept", "cuNothing"],
        ["opcodes", str(tmp_path / "kernel.ptx")],
    ):
        done = gate(*arguments)
        assert done.returncode == ExitCode.OK, done.stderr
        assert done.stdout.startswith(f"{arguments[0]}: ") or f"\n{arguments[0]}: " in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["everything"],
        ["ptx", "x.ptx", "--compiler", "zoc"],
        ["ptx", "x.ptx", "--compiler", "zoc", "--target", "rx7900"],
        ["ptx", "x.ptx", "--compiler", "zoc", "--target", "gfx1100", "--jobs", "0"],
        ["ptx", "x.ptx", "--compiler", "zoc", "--target", "gfx1100", "--budget", "-1"],
    ],
)
def test_a_wrong_command_line_is_refused_with_the_usage(arguments: list[str]) -> None:
    done = gate(*arguments)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.startswith("usage: ")


def test_unreadable_input_ends_with_its_own_code_and_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["symbols", str(tmp_path / "absent")]) == ExitCode.HOST
    (tmp_path / "text").write_text("hello")
    assert main(["symbols", str(tmp_path / "text")]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "error: symbols: cannot read" in said
    assert "Traceback" not in said


def test_the_gates_need_no_more_than_their_own_requirements() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) <= ALLOWED
