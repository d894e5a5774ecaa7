"""Kernel statistics in rocprofv3's format. The numbers and names are made up: no card was here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.command_line import run, settle, write
from zluda_stack.bench import rocprof

HEAD = '"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n'
ONE = HEAD + (
    '"__amd_rocclr_copyBuffer",100,1000000,10000.0,10.0,600,10000,1241.4\n'
    '"void mul_mat_q<(ggml_type)2, 64, false>(char const*, int)",50,9000000,180000.0,90.0,1,2,3\n'
)
TWO = HEAD + '"__amd_rocclr_copyBuffer",300,10000000,33333.3,100.0,600,10000,1241.4\n'


def test_the_kernels_of_all_processes_are_added_up_and_the_longest_is_first(
    tmp_path: Path,
) -> None:
    write(tmp_path / "host" / "12_kernel_stats.csv", ONE)
    write(tmp_path / "host" / "13_kernel_stats.csv", TWO)
    first, second = rocprof.collect(tmp_path)
    assert (first.name, first.calls, first.total_ns) == ("__amd_rocclr_copyBuffer", 400, 11000000)
    assert first.percent == 55
    assert second.name == "void mul_mat_q<(ggml_type)2, 64, false>(char const*, int)"
    assert rocprof.rows((second,)) == [("45.0 %", "9.0 ms", "50", "180.0 us", second.name)]


def test_columns_of_later_versions_do_no_harm() -> None:
    text = '"Calls","Name","Percentage","TotalDurationNs","New"\n7,"k",100.0,70,"x"\n'
    (kernel,) = rocprof.parse(text)
    assert (kernel.name, kernel.calls, kernel.total_ns) == ("k", 7, 70)


@pytest.mark.parametrize(
    "text", ["", "no csv", '"Name","Calls"\n"k",1\n', HEAD + '"k",many,1,1,1\n', HEAD + '"k",1\n']
)
def test_another_kind_of_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no columns|no numbers"):
        rocprof.parse(text)


def test_the_command_prints_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(tmp_path, monkeypatch)
    write(tmp_path / "profile" / "12_kernel_stats.csv", ONE)
    told = run("bench", "--rocprof", str(tmp_path / "profile"))
    assert told.code == 0, told.err
    assert told.out.splitlines()[1].startswith("90.0 %")
    nothing = run("bench", "--rocprof", str(tmp_path / "nowhere"))
    assert nothing.code == 5
    assert "needs an AMD card" in nothing.err
    write(tmp_path / "broken" / "1_kernel_stats.csv", "x")
    assert (
        "1_kernel_stats.csv cannot be read"
        in run("bench", "--rocprof", str(tmp_path / "broken")).err
    )
    assert run("bench", "cpu", "--rocprof", "x").code == 2
