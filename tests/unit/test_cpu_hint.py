"""That the CPU serves a model instead is said where a server would start, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.command_line import CASES, Outcome, run, settle, write

CPU_WAY = "--engine embedded"
NO_DOCKER, NO_DRI, ROOTLESS = "radeon-without-docker", "kfd-without-dri", "rootless-docker"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = settle(tmp_path, monkeypatch)
    write(home / "a.cu", "int main() { cudaFree(0); }\n")
    write(home / "program", "")
    return home


def told(words: str, case: str) -> Outcome:
    return run("--host-facts", str(CASES / f"{case}.json"), *words.split())


@pytest.mark.parametrize("case", [NO_DOCKER, NO_DRI, ROOTLESS])
@pytest.mark.parametrize("words", ["plan --json", "up --dry-run"])
def test_it_is_said_where_a_server_would_start(words: str, case: str) -> None:
    outcome = told(words, case)
    assert CPU_WAY in outcome.out + outcome.err


@pytest.mark.parametrize("case", [NO_DOCKER, NO_DRI, ROOTLESS])
@pytest.mark.parametrize(
    "words",
    [
        "toolbox hipify a.cu",
        "toolbox rocminfo",
        "toolbox --gpu 0 rocminfo",
        "toolbox --list",
        "build toolbox",
        "run -- ./program",
        "run --dry-run -- ./program",
        "adapt some:image",
        "bench native --dry-run --json",
        "bench native cpu --dry-run --json",
        "verify",
        "advise",
        "advise a.cu",
        "advise qwen2.5-coder-7b",
    ],
)
def test_it_is_not_said_where_it_helps_nothing(words: str, case: str) -> None:
    outcome = told(words, case)
    assert CPU_WAY not in outcome.out + outcome.err


def test_what_helps_in_its_place_is_said() -> None:
    for case in (NO_DOCKER, "laptop-without-gpu-or-docker"):
        (lack,) = told("bench native --dry-run --json", case).json["not_measured"]
        assert "zluda-stack bench cpu" in lack["hint"]
    assert "zluda-stack doctor" in told("run -- ./program", NO_DRI).err
    assert "zluda-stack advise" in told("toolbox hipify a.cu", NO_DOCKER).err
