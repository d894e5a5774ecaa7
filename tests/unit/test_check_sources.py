"""`check` on folders, wheels, installed packages, and what they hold all together."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.command_line import run, settle
from tests.unit.cuda_programs import cubin, library, module, needs_compiler, ptx
from tests.unit.fat_binaries import container
from zluda_stack.errors import ExitCode

pytestmark = needs_compiler


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield settle(tmp_path / "home", monkeypatch)


def report(*arguments: str) -> Any:
    """The JSON of `check`, with the verdicts by file beside it."""
    told = run("check", "--json", *arguments)
    assert "error" not in told.json, told.out
    return {**told.json, "verdicts": {one["file"]: one["verdict"] for one in told.json["files"]}}


def wheel(folder: Path, *files: Path) -> Path:
    """A wheel that holds `files` in a package, and a text."""
    path = folder / "some-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("some/__init__.py", "import ctypes\n")
        for file in files:
            archive.write(file, f"some/lib/{file.name}")
    return path


def test_a_folder_is_read_whole_and_each_file_once(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    good = library(tree / "a" / "libgood.so", container(module()))
    library(tree / "b" / "libplain.so")
    (tree / "b" / "kernel.ptx").write_bytes(ptx())
    (tree / "b" / "notes.txt").write_text("no program")
    (tree / "b" / "again.so").symlink_to(good)
    (tree / "b" / "round").symlink_to(tree, target_is_directory=True)
    (tree / "b" / "nowhere").symlink_to("absent")
    os.mkfifo(tree / "b" / "pipe")
    found = report(str(tree))
    assert found["verdicts"] == {
        str(good): "will likely run",
        str(tree / "b" / "kernel.ptx"): "will likely run",
    }
    assert found["without_cuda"] == 1


def test_one_part_that_cannot_run_is_a_gap_of_the_whole_unless_it_is_all(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    library(tree / "libreal.so", container(cubin("k")))
    assert report(str(tree))["exit_code"] == ExitCode.REFUSED
    library(tree / "libuser.so", needed=["libcudart.so.12"])
    assert report(str(tree))["verdict"] == "cannot run"
    library(tree / "libgood.so", container(module()))
    assert report(str(tree))["verdict"] == "may run, with gaps"
    assert report(str(tree), str(tree / "libreal.so"))["verdict"] == "cannot run"


def test_a_damaged_file_among_good_ones_is_a_gap(tmp_path: Path) -> None:
    good = library(tmp_path / "tree" / "libgood.so", container(module()))
    (tmp_path / "tree" / "libcut.so").write_bytes(good.read_bytes()[:3000])
    found = report(str(tmp_path / "tree"))
    assert found["verdicts"][str(tmp_path / "tree" / "libcut.so")] == "cannot be judged"
    assert (found["verdict"], found["exit_code"]) == ("may run, with gaps", ExitCode.GAPS)


def test_a_folder_without_programs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    told = run("check", str(tmp_path / "empty"))
    assert told.code == ExitCode.USAGE
    assert "no program and no library" in told.err


def test_a_wheel_is_read_without_being_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    kernels = library(tmp_path / "libkernels.so", container(module(sm=86)))
    user = library(tmp_path / "libuser.so", needed=["libkernels.so"], runpath="$ORIGIN")
    path = wheel(tmp_path, kernels, user)
    found = report(str(path))
    inside = f"{path}!some/lib/libkernels.so"
    assert found["verdicts"] == {inside: "may run, with gaps"}
    assert found["files"][0]["ptx"][0]["name"] == "libkernels.1.sm_86.ptx"
    assert list(temporary.iterdir()) == []
    told = run("check", str(path))
    assert f"{path}!:\n" in told.out
    assert "\nsome/lib/libkernels.so" in told.out


def test_wheels_in_a_folder_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    path = wheel(tmp_path / "wheels", library(tmp_path / "lib.so", container(cubin("k"))))
    assert report(str(tmp_path / "wheels"))["verdicts"] == {f"{path}!some/lib/lib.so": "cannot run"}


def test_needed_libraries_are_found_inside_the_wheel(tmp_path: Path) -> None:
    kernels = library(tmp_path / "libkernels.so", container(module()))
    needed = ["libkernels.so", "libcublas.so.12", "libnccl.so.2", "libc.so.6", "libother.so"]
    user = library(tmp_path / "libuser.so", container(module()), needed=needed, runpath="$ORIGIN")
    path = wheel(tmp_path, kernels, user)
    (one,) = [file for file in report(str(path))["files"] if "libuser" in file["file"]]
    assert {need["library"]: need["origin"] for need in one["needs"]} == {
        "libkernels.so": "given",
        "libcublas.so.12": "ZLUDA",
        "libnccl.so.2": "NVIDIA",
        "libc.so.6": "system",
        "libother.so": "missing",
    }


def test_a_damaged_member_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    good = library(tmp_path / "libgood.so", container(module()))
    path = wheel(tmp_path, good)
    raw = bytearray(path.read_bytes())
    place = raw.find(b"some/lib/libgood.so") + 400
    raw[place : place + 40] = bytes(40)
    path.write_bytes(raw)
    told = run("check", str(path))
    assert told.code == ExitCode.USAGE
    assert "cannot be judged" in told.out


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(b"PK no archive")
    told = run("check", str(tmp_path / "x.whl"))
    assert told.code == ExitCode.USAGE
    assert "zip archive" in told.err


def test_an_installed_package_of_another_interpreter(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    command = [sys.executable, "-m", "venv", "--without-pip", str(environment)]
    subprocess.run(command, check=True)
    site = next((environment / "lib").glob("python*")) / "site-packages"
    kernels = library(site / "some" / "libkernels.so", container(module()))
    meta = site / "some_kernels-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: some-kernels\nVersion: 1.0\n")
    (meta / "RECORD").write_text("some/libkernels.so,,\nsome/absent.so,,\n")
    python = str(environment / "bin" / "python")
    assert report("some_kernels", "--python", python)["verdicts"] == {
        str(kernels): "will likely run"
    }
    told = run("check", "another-package", "--python", python)
    assert told.code == ExitCode.USAGE
    assert "image:another-package" in told.err


def test_an_interpreter_that_does_not_answer_is_told(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    python.chmod(0o755)
    told = run("check", "some-package", "--python", str(python))
    assert told.code == ExitCode.HOST
    assert "broken" in told.err


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_this_hosts_problem(tmp_path: Path) -> None:
    path = library(tmp_path / "lib.so", container(module()))
    path.chmod(0)
    told = run("check", str(path))
    assert told.code == ExitCode.HOST
