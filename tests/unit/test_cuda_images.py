"""What the CUDA images are made of: terms accepted first, PTX only, the self-test's word."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.unit.cuda_toolkit import Toolkit
from tests.unit.plans import image
from zluda_stack import paths
from zluda_stack.catalog import coverage as covered
from zluda_stack.catalog.load import load
from zluda_stack.cuda import fatbin, ptx
from zluda_stack.cuda.coverage import unknown_opcodes
from zluda_stack.cuda.fatbin import CodeKind
from zluda_stack.render.dockerfiles import render_dockerfile

SOURCES = paths.images() / "selftest" / "src"
PROGRAMS = sorted(path.stem for path in SOURCES.glob("*.cu"))
# Their kernels are cuBLAS's; the toolkit of these tests is without it.
OF_CUBLAS = {path.stem for path in SOURCES.glob("*.cu") if "cublas.cuh" in path.read_text()}
USING_THE_TOOLKIT = ["inference", "selftest"]


def steps(name: str) -> list[str]:
    """The instructions of a rendered Dockerfile, each on one line, without comments."""
    joined = re.sub(r"\\\n\s*", "", render_dockerfile(image(name)))
    return [line for line in joined.splitlines() if line and not line.startswith("#")]


def stage(name: str, of: str) -> list[str]:
    """The instructions of the stage `of`, FROM included."""
    lines = steps(name)
    start = next(i for i, line in enumerate(lines) if re.fullmatch(rf"FROM \S+ AS {of}", line))
    length = next(
        (i for i, line in enumerate(lines[start + 1 :]) if line.startswith("FROM ")), len(lines)
    )
    return lines[start : start + 1 + length]


def asked(acceptance: str | None) -> subprocess.CompletedProcess[str]:
    """What the first step of the toolkit's stage does with this build argument."""
    command = next(line for line in stage("selftest", "cuda-toolkit") if line.startswith("RUN "))
    given = {} if acceptance is None else {"ACCEPT_CUDA_EULA": acceptance}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command.removeprefix("RUN ")],
        env={"PATH": os.environ["PATH"], "ACCEPT_CUDA_EULA": ""} | given,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("acceptance", [None, "", "no", "true", "YES"])
def test_a_build_stops_until_the_terms_are_accepted_and_says_where_they_are(
    acceptance: str | None,
) -> None:
    told = asked(acceptance)
    assert told.returncode == 1
    terms = load().components["cuda-toolkit"].terms
    assert terms is not None
    assert terms in told.stderr
    assert "--build-arg ACCEPT_CUDA_EULA=yes" in told.stderr


def test_a_build_goes_on_when_the_terms_are_accepted() -> None:
    told = asked("yes")
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.parametrize("name", USING_THE_TOOLKIT)
def test_nothing_of_nvidias_is_downloaded_before_the_terms_are_accepted(name: str) -> None:
    lines = stage(name, "cuda-toolkit")
    ask = next(i for i, line in enumerate(lines) if "ACCEPT_CUDA_EULA" in line and "exit 1" in line)
    assert lines[1 : ask + 1] == [lines[1], "ARG ACCEPT_CUDA_EULA=", lines[ask]]
    downloads = [line for line in steps(name) if "nvidia-cuda-nvcc" in line]
    assert downloads == [line for line in lines[ask + 1 :] if "nvidia-cuda-nvcc" in line]
    assert len(downloads) == 1


@pytest.mark.parametrize("name", USING_THE_TOOLKIT)
def test_every_wheel_of_the_toolkit_is_installed_at_the_catalogues_hash(name: str) -> None:
    text = "\n".join(stage(name, "cuda-toolkit"))
    found = set(re.findall(r"'(nvidia-\S+)==(\S+) --hash=sha256:([0-9a-f]{64})'", text))
    wheels = load().components["cuda-toolkit"].artifacts
    expected = set()
    for wheel in wheels:
        package, version = wheel.file.split("-")[:2]
        expected.add((package.replace("_", "-"), version, wheel.sha256))
    assert found == expected
    assert "--require-hashes" in text


@pytest.mark.parametrize("name", USING_THE_TOOLKIT)
def test_the_toolkit_is_mounted_while_others_build_and_copied_nowhere(name: str) -> None:
    using = [line for line in steps(name) if "from=cuda-toolkit" in line]
    assert using
    for line in using:
        assert line.startswith("RUN --mount=")
        for copied in re.findall(r"cp (/usr/local/cuda/\S+)", line):
            # The only part that NVIDIA's licence lets others hand on, and that is needed.
            assert copied == "/usr/local/cuda/lib/libcudart.so.13"


def test_the_server_is_built_for_what_zluda_reports_and_without_machine_code() -> None:
    declared = [line for line in steps("inference") if line.startswith("ARG CUDA_ARCHITECTURES=")]
    assert len(declared) == 1
    architectures = declared[0].partition("=")[2].split(";")
    assert "80-virtual" in architectures  # ZLUDA reports 8.5, so code for 86 alone finds no device
    assert all(architecture.endswith("-virtual") for architecture in architectures)


@pytest.mark.parametrize("program", sorted(set(PROGRAMS) - OF_CUBLAS))
def test_a_program_holds_ptx_for_two_targets_that_zluda_can_read(
    toolkit: Toolkit, program: str
) -> None:
    built = toolkit.work / f"{program}.fatbin"
    asked_for = re.search(
        r"ARCHITECTURES=\"(\S+)\"", "\n".join(stage("selftest", "selftest-build"))
    )
    assert asked_for is not None
    numbers = [name.removesuffix("-virtual") for name in asked_for[1].split(";")]
    codes = [f"-gencode=arch=compute_{n},code=compute_{n}" for n in numbers]
    source = str(SOURCES / f"{program}.cu")
    toolkit.run("nvcc", "-std=c++17", "-O3", "-fatbin", *codes, source, "-o", str(built))

    entries = fatbin.read(built)
    assert {entry.kind for entry in entries} == {CodeKind.PTX}
    assert [entry.architecture for entry in entries] == ["sm_80", "sm_86"]
    coverage = covered.load()
    for entry in entries:
        module = ptx.parse(entry.content(), name=program)
        assert unknown_opcodes(coverage, module) == {}
        assert program == "memory" or module.entries


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the script that runs the programs, and no program yet."""
    script = tmp_path / "selftest"
    script.write_bytes((SOURCES / "selftest").read_bytes())
    script.chmod(0o755)
    return tmp_path


def program(folder: Path, name: str, body: str) -> None:
    """A fake CUDA program, in shell."""
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def line(name: str, ok: str, device: str = '"Fake GPU"') -> str:
    return f'{{"test": "{name}", "ok": {ok}, "detail": "as said", "device": {device}}}'


def run(folder: Path, *names: str, timeout: str = "60") -> tuple[int, list[dict[str, object]]]:
    """The exit code of the script, and each line that it printed."""
    done = subprocess.run(
        [str(folder / "selftest"), *names],
        env={"PATH": os.environ["PATH"], "SELFTEST_TIMEOUT": timeout},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, [json.loads(told) for told in done.stdout.splitlines()]


def test_without_arguments_every_program_of_the_folder_is_run(folder: Path) -> None:
    for name in PROGRAMS:
        program(folder, name, f"echo '{line(name, 'true')}'")
    code, told = run(folder)
    assert code == 0
    assert sorted(str(each["test"]) for each in told[:-1]) == PROGRAMS
    assert told[0] == {
        "test": told[0]["test"],
        "ok": True,
        "detail": "as said",
        "device": "Fake GPU",
    }
    assert told[-1]["test"] == "selftest"
    assert told[-1]["detail"] == f"{len(PROGRAMS)} of {len(PROGRAMS)} passed"


def test_one_wrong_result_fails_the_whole_and_the_others_still_run(folder: Path) -> None:
    program(folder, "bad", f"echo '{line('bad', 'false')}'; exit 1")
    program(folder, "good", f"echo '{line('good', 'true')}'")
    code, told = run(folder, "bad", "good")
    assert code == 1
    assert [each["ok"] for each in told] == [False, True, False]
    assert told[-1]["detail"] == "1 of 2 passed"


def test_no_device_has_an_exit_code_of_its_own(folder: Path) -> None:
    for name in ("one", "two"):
        said = f'{{"test": "{name}", "ok": false, "detail": "no ROCm device: why", "device": null}}'
        program(folder, name, f"echo '{said}'; exit 2")
    code, told = run(folder, "one", "two")
    assert code == 2
    assert told[-1] == {"test": "selftest", "ok": False, "detail": "no ROCm device", "device": None}


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ("echo 'a \"strange\\\\ error' >&2; kill -SEGV $$", 'a "strange\\ error'),
        ("exit 3", "exit code 3"),
        ("echo starting", "exit code 0"),
        ("exec sleep 60", "no result after 1 s"),
    ],
    ids=["crashed", "failed without a word", "said something else", "hung"],
)
def test_a_program_without_a_result_is_reported_as_failed(
    folder: Path, body: str, detail: str
) -> None:
    program(folder, "lost", body)
    code, told = run(folder, "lost", timeout="1")
    assert code == 1
    assert told[0]["test"] == "lost"
    assert told[0]["ok"] is False
    assert detail in str(told[0]["detail"])
    assert told[-1]["detail"] == "0 of 1 passed"


def test_a_program_that_is_not_there_is_named(folder: Path) -> None:
    code, told = run(folder, "absent")
    assert code == 1
    assert told[0]["test"] == "absent"
    assert "No such file" in str(told[0]["detail"])
