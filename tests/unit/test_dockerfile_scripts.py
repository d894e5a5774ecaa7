"""The scripts that image builds run, on real git trees and real programs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from zluda_stack import paths

SCRIPTS = (paths.images() / "zluda", paths.images() / "_scripts")
GIB_IN_KIB = 1024 * 1024
SOURCE = ("ext/llvm", "lib/ockl.bc")

pytestmark = pytest.mark.skipif(
    not Path("/proc/self").exists() or shutil.which("git") is None or shutil.which("ldd") is None,
    reason="the scripts run in a Linux image, with git and ldd",
)


def script(
    name: str, *arguments: str, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    path = next(folder / name for folder in SCRIPTS if (folder / name).is_file())
    return subprocess.run(
        [str(path), *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, "-c", "protocol.file.allow=always", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a submodule and a Git LFS file, all of it there."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    llvm, top = tmp_path / "llvm", tmp_path / "top"
    for folder in (llvm, top):
        folder.mkdir()
        git(folder, "init", "--quiet")
    (llvm / "CMakeLists.txt").write_text("project(llvm)\n")
    git(llvm, "add", ".")
    git(llvm, "commit", "--quiet", "-m", "llvm")
    git(top, "submodule", "--quiet", "add", str(llvm), "ext/llvm")
    bitcode = top / "lib" / "ockl.bc"
    bitcode.parent.mkdir()
    bitcode.write_text(pointer(b"BC the real file"))
    git(top, "add", ".")
    git(top, "commit", "--quiet", "-m", "top")
    bitcode.write_bytes(b"BC the real file")
    return top


def pointer(content: bytes) -> str:
    return (
        "version https://git-lfs.github.com/spec/v1\n"
        f"oid sha256:{hashlib.sha256(content).hexdigest()}\nsize {len(content)}\n"
    )


def test_a_whole_source_tree_passes(tree: Path) -> None:
    told = script("check-source", *SOURCE, cwd=tree)
    assert (told.returncode, told.stderr) == (0, "")


def test_a_missing_submodule_is_named(tree: Path) -> None:
    shutil.rmtree(tree / "ext" / "llvm")
    (tree / "ext" / "llvm").mkdir()
    told = script("check-source", *SOURCE, cwd=tree)
    assert told.returncode == 1
    assert "submodule ext/llvm is missing" in told.stderr


def test_a_submodule_at_another_commit_is_named(tree: Path) -> None:
    git(tree / "ext" / "llvm", "commit", "--quiet", "--allow-empty", "-m", "another")
    told = script("check-source", *SOURCE, cwd=tree)
    assert told.returncode == 1
    assert "submodule ext/llvm is at" in told.stderr


def test_a_submodule_that_was_checked_out_in_part_is_named(tree: Path) -> None:
    (tree / "ext" / "llvm" / "CMakeLists.txt").unlink()
    told = script("check-source", *SOURCE, cwd=tree)
    assert told.returncode == 1
    assert "submodule ext/llvm is not checked out whole" in told.stderr


def test_a_git_lfs_pointer_is_not_taken_for_the_file(tree: Path) -> None:
    (tree / "lib" / "ockl.bc").write_text(pointer(b"BC the real file"))
    told = script("check-source", *SOURCE, cwd=tree)
    assert told.returncode == 1
    assert "lib/ockl.bc is a Git LFS pointer" in told.stderr


def test_a_missing_or_damaged_lfs_file_is_named(tree: Path) -> None:
    (tree / "lib" / "ockl.bc").write_bytes(b"BC cut off")
    assert "lib/ockl.bc has sha256" in script("check-source", *SOURCE, cwd=tree).stderr
    (tree / "lib" / "ockl.bc").unlink()
    assert "lib/ockl.bc is missing" in script("check-source", *SOURCE, cwd=tree).stderr


def test_a_path_that_the_commit_does_not_have_is_named(tree: Path) -> None:
    told = script("check-source", "ext/gone", cwd=tree)
    assert told.returncode == 1
    assert "ext/gone is not in this commit" in told.stderr


def jobs(tmp_path: Path, available_kib: int, limit: str = "max", wish: str = "") -> str:
    meminfo, limit_file = tmp_path / "meminfo", tmp_path / "memory.max"
    meminfo.write_text(f"MemTotal: 99999999 kB\nMemAvailable: {available_kib} kB\n")
    limit_file.write_text(limit + "\n")
    told = script(
        "build-jobs", wish, cwd=tmp_path, MEMINFO=str(meminfo), MEMORY_LIMIT=str(limit_file)
    )
    assert told.returncode == 0, told.stderr
    return told.stdout.strip()


def cores() -> int:
    return int(subprocess.run(["nproc"], capture_output=True, text=True, check=True).stdout)


def test_memory_bounds_the_number_of_compilers(tmp_path: Path) -> None:
    assert jobs(tmp_path, 3 * GIB_IN_KIB) == "1"
    assert jobs(tmp_path, 4 * GIB_IN_KIB) == str(min(2, cores()))


def test_cores_bound_the_number_of_compilers(tmp_path: Path) -> None:
    assert jobs(tmp_path, 4096 * GIB_IN_KIB) == str(cores())


def test_the_limit_of_the_container_counts_when_it_is_smaller(tmp_path: Path) -> None:
    assert jobs(tmp_path, 4096 * GIB_IN_KIB, limit=str(3 * GIB_IN_KIB * 1024)) == "1"


def test_there_is_always_one_compiler(tmp_path: Path) -> None:
    assert jobs(tmp_path, 1024) == "1"


def test_the_users_number_of_compilers_wins(tmp_path: Path) -> None:
    assert jobs(tmp_path, 1024, wish="9") == "9"


@pytest.mark.parametrize("wish", ["0", "many", "-1", "2x"])
def test_a_number_of_compilers_that_is_none_is_refused(tmp_path: Path, wish: str) -> None:
    told = script("build-jobs", wish, cwd=tmp_path)
    assert told.returncode == 1
    assert wish in told.stderr


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """A folder with a library that needs another one of the same folder."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to make libraries with")
    folder = tmp_path / "zluda"
    folder.mkdir()
    source = tmp_path / "one.c"
    source.write_text("int one(void) { return 1; }\n")
    common = [compiler, "-shared", "-fPIC", "-o"]
    inner, outer = str(folder / "libinner.so"), str(folder / "libouter.so")
    subprocess.run([*common, inner, str(source), "-Wl,-soname,libinner.so"], check=True)
    linked = ["-Wl,--no-as-needed", f"-L{folder}", "-linner"]
    subprocess.run([*common, outer, str(source), *linked], check=True)
    (folder / "BUILD-INFO.json").write_text("{}")
    return folder


def test_libraries_that_find_each_other_pass(libraries: Path) -> None:
    told = script("check-libraries", str(libraries), cwd=libraries)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith("2 files checked")


def test_a_library_that_is_not_found_is_named_with_who_needs_it(libraries: Path) -> None:
    (libraries / "libinner.so").unlink()
    told = script("check-libraries", str(libraries), cwd=libraries)
    assert told.returncode == 1
    assert "libouter.so needs libinner.so, which is not found" in told.stderr


def test_a_folder_without_any_library_does_not_pass(tmp_path: Path) -> None:
    told = script("check-libraries", str(tmp_path), cwd=tmp_path)
    assert told.returncode == 1
    assert "holds no program" in told.stderr
