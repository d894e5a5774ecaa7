"""The scripts of the toolbox's image, with fakes of the tools that they call."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from zluda_stack import paths

SCRIPTS = paths.images() / "toolbox"
pytestmark = pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="the scripts run in a Linux image"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of the PATH, with what the entrypoint sources."""
    (tmp_path / "gpu-nodes").symlink_to(paths.images() / "_scripts/gpu-nodes")
    return tmp_path


def fake(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/bash\n{script}\n")
    (folder / name).chmod(0o755)


def run(folder: Path, name: str, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPTS / name), *words],
        env={"PATH": f"{folder}:/usr/bin:/bin", "TMPDIR": str(folder)},
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_hipify_perl_gets_the_source_of_stdin(folder: Path) -> None:
    fake(folder, "hipify-perl", 'echo "$*" >&2; cat "$2"; exit 0')
    told = run(folder, "to-hip", "perl", given="the source\n")
    assert (told.returncode, told.stdout) == (0, "the source\n")
    assert told.stderr == "-print-stats source.cu\n"


def test_hipify_clang_gets_the_toolkit_and_clangs_options(folder: Path) -> None:
    script = 'echo "$@" >&2; while [[ "$1" != -o ]]; do shift; done; echo converted >"$2"'
    fake(folder, "hipify-clang", script)
    told = run(folder, "to-hip", "clang", "/p/x.cu", "-I/p", "-DX")
    assert (told.returncode, told.stdout) == (0, "converted\n")
    begin, end = "/p/x.cu --cuda-path=/usr/local/cuda --print-stats -o ", " -- -I/p -DX\n"
    assert told.stderr.startswith(begin)
    assert told.stderr.endswith(end)


@pytest.mark.parametrize("words", [("perl",), ("clang", "/p/x.cu")])
def test_a_converter_that_fails_fails_it_and_nothing_is_left(
    folder: Path, words: tuple[str, ...]
) -> None:
    for name in ("hipify-perl", "hipify-clang"):
        fake(folder, name, "echo broken >&2; exit 3")
    before = sorted(folder.iterdir())
    told = run(folder, "to-hip", *words)
    assert (told.returncode, told.stdout) == (3, "")
    assert "broken" in told.stderr
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        ("nvcc-of-nobody", "there is no command nvcc-of-nobody in the toolbox"),
        ("nvcc", "this toolbox has no nvcc"),
    ],
)
def test_a_tool_that_is_not_there_is_said(folder: Path, tool: str, told: str) -> None:
    done = run(folder, "in-toolbox", tool)
    assert done.returncode == 127
    assert done.stderr.startswith(f"error: {told}")
    assert "hint: " in done.stderr


def test_a_tool_gets_its_arguments_and_ends_it_with_its_code(folder: Path) -> None:
    fake(folder, "hipcc", 'printf "%s|" "$@"; exit 7')
    done = run(folder, "in-toolbox", "hipcc", "a b", "--", "-v")
    assert (done.returncode, done.stdout) == (7, "a b|--|-v|")


def test_hipify_clang_without_the_toolkit_says_what_it_lacks(folder: Path) -> None:
    if Path("/usr/local/cuda/include/cuda_runtime.h").exists():
        pytest.skip("this machine has the toolkit")
    fake(folder, "hipify-clang", "echo help")
    done = run(folder, "in-toolbox", "hipify-clang", "--help")
    assert done.stdout == "help\n"
    assert "without NVIDIA's toolkit" in done.stderr


def test_an_override_reaches_the_tool_and_an_empty_one_does_not(folder: Path) -> None:
    fake(folder, "rocminfo", 'echo "${HSA_OVERRIDE_GFX_VERSION-none}"')
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "HSA_OVERRIDE_GFX_VERSION": ""}
    for override, seen in (("10.3.0", "10.3.0"), ("", "none")):
        done = subprocess.run(
            [str(SCRIPTS / "in-toolbox"), "rocminfo"],
            env=environment | {"HSA_OVERRIDE": override},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == seen


def test_a_toolbox_without_its_two_converters_is_not_built(folder: Path) -> None:
    fake(folder, "hipcc", "exit 0")
    fake(folder, "dpkg-query", "echo hipcc: /usr/bin/hipcc")
    done = run(folder, "list-tools")
    assert done.returncode == 1
    assert "error: hipify-perl was not installed" in done.stderr
    fake(folder, "hipify-perl", "exit 0")
    listed = run(folder, "list-tools")
    assert listed.returncode == 0, listed.stderr
    lines = dict(line.split("\t") for line in listed.stdout.splitlines())
    assert lines["hipcc"]
    assert lines["rocgdb"] == ""
