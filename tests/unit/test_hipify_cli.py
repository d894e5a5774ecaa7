"""`toolbox hipify`: where results go, what is never lost, what is said. The converter is a fake."""

from __future__ import annotations

import os
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.unit.command_line import CASES, Outcome, run, settle
from zluda_stack.cli import in_toolbox
from zluda_stack.engines.docker import containers, look
from zluda_stack.engines.docker import toolbox as engine
from zluda_stack.engines.docker.toolbox import Output
from zluda_stack.errors import EngineFailure, ExitCode
from zluda_stack.plan.run import RunPlan
from zluda_stack.port import folder

PLAIN = b"int main() { cudaFree(0); }\n"
WITH_PTX = b'__global__ void k() {\n    asm("trap;");\n}\n'
HERE = ("--host-facts", str(CASES / "radeon-rx-7900-xtx.json"))


def fake_convert(plan: RunPlan, source: bytes) -> Output:
    """As hipify-perl is called and answers, for one name."""
    assert plan.command == ("to-hip", "perl")
    assert not plan.mounts
    assert not plan.devices
    told = "[HIPIFY] info: CONVERTED refs by names:\n  cudaFree => hipFree: 1\n"
    return Output(result=re.sub(rb"\bcudaFree\b", b"hipFree", source), told=told)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a toolbox that is built."""
    folder = settle(tmp_path, monkeypatch)
    monkeypatch.setattr(engine, "convert", fake_convert)
    monkeypatch.setattr(in_toolbox, "require_image", lambda *_: None)
    (folder / "plain.cu").write_bytes(PLAIN)
    (folder / "ptx.cu").write_bytes(WITH_PTX)
    return folder


def hipify(*words: str) -> Outcome:
    return run(*HERE, "toolbox", "hipify", *words)


def test_the_result_is_written_beside_the_source_which_stays(project: Path) -> None:
    told = hipify("plain.cu")
    assert told.code == ExitCode.OK, told.err
    assert (project / "plain.cu").read_bytes() == PLAIN
    assert (project / "plain.cu.hip").read_text() == "int main() { hipFree(0); }\n"
    assert "plain.cu: 1 names converted (the CUDA runtime 1)" in told.out
    assert "written: plain.cu.hip" in told.out


def test_what_is_left_to_do_is_said_noted_and_an_exit_code(project: Path) -> None:
    told = hipify("plain.cu", "ptx.cu")
    assert told.code == ExitCode.GAPS
    assert "ptx.cu:2: trap: inline PTX" in told.out
    written = (project / "ptx.cu.hip").read_bytes()
    assert written.startswith(b"// NOT CONVERTED")
    assert written.endswith(WITH_PTX)
    assert (project / "plain.cu.hip").exists()


def test_a_check_writes_nothing(project: Path) -> None:
    before = sorted(project.iterdir())
    assert hipify("--check", "plain.cu").code == ExitCode.OK
    assert hipify("--check", "ptx.cu").code == ExitCode.GAPS
    assert sorted(project.iterdir()) == before


def test_in_place_keeps_the_source_and_its_mode(project: Path) -> None:
    (project / "plain.cu").chmod(0o640)
    told = hipify("--in-place", "plain.cu")
    assert told.code == ExitCode.OK, told.err
    assert b"hipFree" in (project / "plain.cu").read_bytes()
    assert (project / "plain.cu.prehip").read_bytes() == PLAIN
    for name in ("plain.cu", "plain.cu.prehip"):
        assert (project / name).stat().st_mode & 0o777 == 0o640


def test_in_place_never_loses_a_source_that_was_kept_before(project: Path) -> None:
    hipify("--in-place", "plain.cu")
    edited = b"int main() { cudaFree(1); }\n"
    (project / "plain.cu").write_bytes(edited)
    hipify("--in-place", "plain.cu")
    assert (project / "plain.cu.prehip").read_bytes() == PLAIN
    assert (project / "plain.cu.prehip.2").read_bytes() == edited


def test_converting_again_in_place_notes_once(project: Path) -> None:
    hipify("--in-place", "ptx.cu")
    once = (project / "ptx.cu").read_bytes()
    hipify("--in-place", "ptx.cu")
    assert (project / "ptx.cu").read_bytes() == once


def test_a_result_that_somebody_worked_on_is_not_overwritten(project: Path) -> None:
    (project / "plain.cu.hip").write_text("my own work\n")
    told = hipify("plain.cu")
    assert told.code == ExitCode.USAGE
    assert "--force" in told.err
    assert (project / "plain.cu.hip").read_text() == "my own work\n"
    assert hipify("--force", "plain.cu").code == ExitCode.OK
    assert "hipFree" in (project / "plain.cu.hip").read_text()
    # The same result again is no change.
    assert hipify("plain.cu").code == ExitCode.OK


def test_of_several_results_none_is_written_when_one_would_be_lost(project: Path) -> None:
    (project / "ptx.cu.hip").write_text("my own work\n")
    assert hipify("plain.cu", "ptx.cu").code == ExitCode.USAGE
    assert not (project / "plain.cu.hip").exists()


def test_the_result_goes_where_the_user_says(project: Path) -> None:
    assert hipify("-o", "out/plain.hip", "plain.cu").code == ExitCode.OK
    assert "hipFree" in (project / "out/plain.hip").read_text()


def test_a_source_through_a_link_is_the_source(project: Path) -> None:
    (project / "link.cu").symlink_to("plain.cu")
    told = hipify("-o", "link.cu", "plain.cu")
    assert told.code == ExitCode.USAGE
    assert "--in-place" in told.err
    assert (project / "plain.cu").read_bytes() == PLAIN


def test_of_a_folder_the_sources_with_cuda_are_converted(project: Path) -> None:
    texts = {
        "src/kernel.cu": "",
        "src/own/kernel.cuh": "",
        "src/host.cpp": '#include <iostream>\n  #  include "cuda_runtime.h"\n',
        "src/blas.h": "#include <cublas_v2.h>\n",
        "src/other.cpp": "#include <vector>\n#include <customer.h>\n",
        "src/.venv/lib.cu": "",
        "src/kernel.cu.prehip": "",
    }
    for name, text in texts.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    told = hipify("--json", "src", "src/kernel.cu")
    assert [one["source"] for one in told.json["files"]] == [
        *("src/blas.h", "src/host.cpp", "src/kernel.cu", "src/own/kernel.cuh"),
    ]


def test_json_has_every_place(project: Path) -> None:
    told = hipify("--json", "plain.cu", "ptx.cu")
    assert told.code == ExitCode.GAPS
    plain, ptx = told.json["files"]
    assert told.json["left_to_do"] == 1
    assert plain["by_library"] == {"the CUDA runtime": 1}
    assert plain["converted"][0]["hip"] == "hipFree"
    assert plain["written"] == "plain.cu.hip"
    assert [(one["line"], one["kind"]) for one in ptx["to_do"]] == [(2, "inline-ptx")]
    assert (project / "ptx.cu.hip").exists()


def test_bytes_that_are_no_utf_8_come_through(project: Path) -> None:
    (project / "old.cu").write_bytes(b"// caf\xe9\n" + PLAIN)
    assert hipify("old.cu").code == ExitCode.OK
    assert (project / "old.cu.hip").read_bytes().startswith(b"// caf\xe9\n")


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (("nothing.cu",), ExitCode.USAGE, "there is no nothing.cu"),
        (("folder",), ExitCode.USAGE, "no CUDA source in folder"),
        (("-o", "x", "plain.cu", "ptx.cu"), ExitCode.USAGE, "for one source"),
        (("-o", "x", "--check", "plain.cu"), ExitCode.USAGE, "exclude each other"),
        (("--in-place", "--check", "plain.cu"), ExitCode.USAGE, "exclude each other"),
        ((), ExitCode.USAGE, "SOURCE"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    project: Path, words: tuple[str, ...], code: ExitCode, hint: str
) -> None:
    (project / "folder").mkdir()
    told = hipify(*words)
    assert told.code == code
    assert hint in told.err


def test_clang_needs_the_toolkit_and_says_so() -> None:
    told = hipify("--clang", "plain.cu")
    assert told.code == ExitCode.REFUSED
    assert "hipify-clang" in told.err
    assert "terms were not accepted" in told.err


@pytest.mark.parametrize(
    ("variant", "why"),
    [
        ("debian", ": the variant debian (ROCm from Debian's own archive) packages none"),
        ("auto", ""),
    ],
)
def test_a_toolbox_without_clang_says_why_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, variant: str, why: str
) -> None:
    tools = "hipcc\t7.0.2 (hipcc)\nhipify-perl\t7.0.2 (hipify-perl)\nhipify-clang\t\n"
    monkeypatch.setattr(look, "read_file", lambda *_: tools)
    monkeypatch.setattr(containers, "connect", nullcontext)
    words = ("--variant", variant, "--accept-cuda-eula", "hipify", "--clang", "plain.cu")
    told = run(*HERE, "toolbox", *words)
    assert told.code == ExitCode.REFUSED
    assert re.search(
        rf"zluda-stack/toolbox-cuda:\S+ has no hipify-clang{re.escape(why)}\n", told.err
    )
    assert "Leave --clang out" in told.err
    assert "zluda-stack build --variant rocm-ubuntu-22.04 --accept-cuda-eula toolbox" in told.err


def test_clang_reads_the_current_folder_and_cannot_write_it() -> None:
    told = run(*HERE, "toolbox", "--accept-cuda-eula", "hipify", "--dry-run", "--clang", "plain.cu")
    assert told.code == ExitCode.OK, told.err
    assert re.search(r"--mount type=bind,source=\S+/project,target=\S+/project,readonly ", told.out)
    assert re.search(
        r"toolbox-cuda:\S+ to-hip clang \S+/project/plain.cu -I\S+/project < plain.cu\n", told.out
    )


def test_a_dry_run_prints_what_goes_where_and_the_command_and_writes_nothing(
    project: Path,
) -> None:
    (project / "a b.cu").write_bytes(PLAIN)
    before = sorted(project.iterdir())
    first, command, *others = hipify("--dry-run", "a b.cu", "ptx.cu").out.splitlines()
    assert first == "# a b.cu -> a b.cu.hip"
    assert command.endswith("zluda-stack/toolbox:rocm-ubuntu-22.04 to-hip perl < 'a b.cu'")
    assert others[0] == "# ptx.cu -> ptx.cu.hip"
    assert sorted(project.iterdir()) == before


def test_a_dry_run_tells_copies_and_what_is_there(project: Path) -> None:
    (project / "plain.cu.hip").write_text("my own work\n")
    (project / "plain.cu.prehip").write_text("what was kept before\n")
    told = {words: hipify("--dry-run", *words.split(), "plain.cu").out for words in (
        "", "--force", "--in-place", "--check", "-o -", "-o other.hip"
    )}  # fmt: skip
    expected = {
        "": "plain.cu.hip; the file there is overwritten with --force only, unless it is the same",
        "--force": "plain.cu.hip; the file there is overwritten",
        "--in-place": "plain.cu; the source is kept: plain.cu.prehip.2",
        "-o -": "stdout",
        "-o other.hip": "other.hip",
    }
    assert told.pop("--check").startswith("# plain.cu: only a report\n")
    assert {words: out.splitlines()[0] for words, out in told.items()} == {
        words: f"# plain.cu -> {place}" for words, place in expected.items()
    }


def test_a_dry_run_as_json_has_sources_results_and_commands() -> None:
    for words in (("hipify", "--dry-run", "--json"), ("--dry-run", "hipify", "--json")):
        told = run(*HERE, "toolbox", *words, "plain.cu", "ptx.cu")
        assert told.json["files"] == [
            {"source": f"{one}.cu", "written": f"{one}.cu.hip", "backup": None, "is_there": False}
            for one in ("plain", "ptx")
        ]
        assert [one[-2:] for one in told.json["commands"]] == [["to-hip", "perl"]] * 2


@pytest.mark.timeout(20)
@pytest.mark.parametrize("mode", [(), ("--dry-run",), ("--check",), ("--in-place",), ("--json",)])
def test_the_whole_machine_and_the_home_folder_are_refused_before_any_look(
    project: Path, monkeypatch: pytest.MonkeyPatch, mode: tuple[str, ...]
) -> None:
    monkeypatch.setattr(folder, "read_folder", lambda *_: pytest.fail("it was looked at"))
    home = project.parents[1]
    (project / "home").symlink_to(home)
    for given in ("/", str(home), str(home.parent), "home", "../..", "/usr/.."):
        told = hipify(*mode, "plain.cu", given)
        assert told.code == ExitCode.USAGE
        assert f"{given} holds " in told.out + told.err


@pytest.mark.parametrize("words", [("",), ("-o", "", "plain.cu")])
def test_an_empty_name_is_not_the_current_folder(project: Path, words: tuple[str, ...]) -> None:
    told = hipify(*words)
    assert told.code == ExitCode.USAGE
    assert "empty" in told.err
    assert not (project / "plain.cu.hip").exists()


@pytest.mark.parametrize("words", [(), ("--check",)])
def test_without_docker_what_counts_without_it_is_named(words: tuple[str, ...]) -> None:
    facts = ("--host-facts", str(CASES / "laptop-without-gpu-or-docker.json"))
    told = run(*facts, "toolbox", "hipify", *words, "plain.cu")
    assert told.code == ExitCode.HOST
    assert (
        "`zluda-stack advise plain.cu` counts what hipify would leave, without Docker" in told.err
    )
    assert "embedded" not in told.err
    advised = run(*facts, "advise", "plain.cu")
    assert advised.code == ExitCode.OK, advised.err


def test_files_of_a_folder_that_could_not_be_read_are_told(project: Path) -> None:
    os.truncate(project / "ptx.cu", 5 << 20)
    told = hipify(".")
    assert told.code == ExitCode.OK, told.err
    assert "not read in .: 1 of its files and folders" in told.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everywhere")
def test_a_folder_that_may_not_be_read_is_said(project: Path) -> None:
    closed = project / "closed"
    closed.mkdir(mode=0o000)
    below, given = hipify("."), hipify("closed")
    closed.chmod(0o700)
    assert "not read in .: 1 of its files and folders" in below.err
    assert given.code == ExitCode.HOST
    assert "cannot read closed: Permission denied" in given.err


def test_a_converter_that_fails_leaves_everything_as_it_was(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Output:
        raise EngineFailure("nothing was converted: no", "a hint")

    monkeypatch.setattr(engine, "convert", fail)
    before = {path.name: path.read_bytes() for path in project.iterdir() if path.is_file()}
    assert hipify("--in-place", "plain.cu").code == ExitCode.ENGINE
    assert {path.name: path.read_bytes() for path in project.iterdir() if path.is_file()} == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_said(project: Path) -> None:
    project.chmod(0o500)
    told = hipify("plain.cu")
    project.chmod(0o700)
    assert told.code == ExitCode.HOST
    assert "cannot write" in told.err


@pytest.mark.timeout(20)
def test_what_is_no_text_is_refused_and_not_waited_for(project: Path) -> None:
    os.mkfifo(project / "fifo.cu")
    (project / "binary.cu").write_bytes(b"\x7fELF\0\0")
    os.truncate(project / "plain.cu", 5 << 20)
    for name in ("fifo.cu", "binary.cu", "plain.cu", "/dev/zero"):
        told = hipify(name)
        assert told.code == ExitCode.USAGE
        assert f"{name} is no" in told.err


def test_a_result_is_not_written_where_it_cannot_be(project: Path) -> None:
    for place in ("/dev/full", str(project)):
        told = hipify("plain.cu", "-o", place)
        assert told.code == ExitCode.USAGE
        assert "is no file" in told.err


def test_a_name_that_is_no_utf8_is_told_as_json(project: Path) -> None:
    name = os.fsdecode(b"caf\xe9.cu")
    (project / name).write_bytes(PLAIN)
    told = hipify("--json", name)
    assert told.code == ExitCode.OK, told.err
    assert [one["source"] for one in told.json["files"]] == [name]
