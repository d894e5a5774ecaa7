"""The wheel and the sdist: everything the program needs travels with it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of this checkout, and the wheel that was built from that sdist."""
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel was installed, far from this checkout."""
    target = tmp_path_factory.mktemp("elsewhere")
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*pip, str(target), str(wheel)], check=True)
    return target


def run(installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What `zluda-stack ARGUMENTS` of the installed wheel says in the folder `cwd`."""
    keep = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "zluda_stack", *arguments],
        cwd=cwd,
        env={**keep, "PYTHONPATH": str(installed), "HOME": str(cwd)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_installed_wheel_is_what_runs_and_knows_its_build(
    installed: Path, tmp_path: Path
) -> None:
    done = run(installed, tmp_path, "--version")
    assert done.returncode == 0, done.stderr
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    assert not commit or commit[:12] in done.stdout
    where = subprocess.run(
        [sys.executable, "-c", "import zluda_stack; print(zluda_stack.__file__)"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(installed))


def test_the_installed_wheel_renders_a_whole_project(installed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run(installed, tmp_path, "render", "--gpu", "gfx1100", "--out", str(out))
    assert done.returncode == 0, done.stderr
    rendered = (out / "images/zluda/Dockerfile").read_text()
    assert rendered == (ROOT / "images/zluda/Dockerfile").read_text()
    assert (out / "compose/inference.yml").exists()
    assert "ZLUDA_STACK_GPU=gfx1100" in (out / "compose/.env").read_text()


def test_the_installed_wheel_plans_and_explains(installed: Path, tmp_path: Path) -> None:
    plan = run(installed, tmp_path, "plan", "--engine", "embedded")
    assert plan.returncode == 0, plan.stderr
    assert "smollm2-135m" in plan.stdout
    assert "RX 7900 XTX" in run(installed, tmp_path, "explain", "gfx1100").stdout


def test_the_sdist_holds_what_the_two_commands_need(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "README.md", "requirements/run.txt", "requirements/dev.txt"} <= names
    assert any(name.startswith("tests/unit/") for name in names)
    assert any(name.startswith("images/zluda/") for name in names)


def test_the_installed_program_makes_the_wheel_again_that_it_came_in(
    installed: Path, built: Path, tmp_path: Path
) -> None:
    make = "import sys, pathlib; from zluda_stack.bundle import wheels; "
    make += "wheels.own_wheel(pathlib.Path(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-c", make, str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
        check=True,
    )
    assert contents(next(tmp_path.glob("*.whl"))) == contents(next(built.glob("*.whl")))


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel but for its RECORD, whose order is free."""
    with zipfile.ZipFile(wheel) as archive:
        names = (name for name in archive.namelist() if not name.endswith("/RECORD"))
        return {name: archive.read(name) for name in names}
