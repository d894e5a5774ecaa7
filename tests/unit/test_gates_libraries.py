"""Gate `libraries`, on real programs and libraries that a compiler makes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from zluda_stack.errors import UsageError
from zluda_stack.gates import libraries
from zluda_stack.gates.verdict import Verdict

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None or shutil.which("ldd") is None, reason="needs gcc and ldd"
)

LIBRARY = ("-shared", "-fPIC")


def compiled(folder: Path, name: str, source: str, *arguments: str) -> Path:
    command = ["gcc", "-x", "c", "-", "-x", "none", "-o", name, f"-L{folder}", *arguments]
    subprocess.run(command, cwd=folder, input=source, text=True, check=True)
    return folder / name


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A library, one that needs it, and a program that needs both, all of it there."""
    folder = tmp_path / "opt"
    folder.mkdir()
    compiled(folder, "libbase.so", "int base(void) { return 1; }", *LIBRARY)
    compiled(
        folder, "libtop.so", "int base(void); int top(void) { return base(); }", *LIBRARY, "-lbase"
    )
    compiled(folder, "program", "int top(void); int main() { return top(); }", "-ltop", "-lbase")
    return folder


def problems(verdict: Verdict) -> dict[str, str]:
    return {Path(found.subject).name: found.problem for found in verdict.findings}


def test_a_whole_tree_passes_with_its_search_path(tree: Path) -> None:
    verdict = libraries.check([tree], search=[tree])
    assert verdict.reason is None
    assert verdict.summary == "3 files checked, 2 libraries of them loaded"


def test_a_library_that_is_not_found_is_named_with_who_needs_it(tree: Path) -> None:
    (tree / "libbase.so").unlink()
    verdict = libraries.check([tree], search=[tree])
    assert problems(verdict) == {
        "libtop.so": "needs libbase.so, which is not found",
        "program": "needs libbase.so, which is not found",
    }
    assert verdict.reason == "2 files cannot be loaded"


def test_a_library_that_lacks_a_function_does_not_load(tree: Path) -> None:
    compiled(tree, "libbase.so", "int other(void) { return 1; }", *LIBRARY)
    found = problems(libraries.check([tree], search=[tree]))
    assert found["libtop.so"].startswith("does not load: ")
    assert "undefined symbol: base" in found["libtop.so"]
    assert found["program"] == "undefined symbol: base"


def test_a_library_that_crashes_is_named_and_the_gate_goes_on(tree: Path) -> None:
    source = "__attribute__((constructor)) void start(void) { *(volatile int *)0 = 1; }"
    compiled(tree, "libcrash.so", source, *LIBRARY)
    verdict = libraries.check([tree], search=[tree])
    assert problems(verdict) == {"libcrash.so": "crashes while it loads (SIGSEGV)"}
    assert verdict.checked == 4


def test_a_library_that_ends_the_process_while_it_loads_is_told(tree: Path) -> None:
    source = "#include <stdlib.h>\n__attribute__((constructor)) void start(void) { _Exit(7); }"
    compiled(tree, "libexit.so", source, *LIBRARY)
    assert problems(libraries.check([tree], search=[tree])) == {
        "libexit.so": "does not load: exit status 7"
    }


def test_a_dangling_link_is_told(tree: Path) -> None:
    (tree / "libbase.so.1").symlink_to("libbase.so.1.2.3")
    assert problems(libraries.check([tree], search=[tree])) == {
        "libbase.so.1": "links to libbase.so.1.2.3, which is not there"
    }


def test_a_damaged_library_is_told(tree: Path) -> None:
    raw = (tree / "libtop.so").read_bytes()
    (tree / "libtop.so").write_bytes(raw[: len(raw) // 2])
    found = problems(libraries.check([tree], search=[tree]))
    assert "is damaged" in found["libtop.so"]


def test_a_library_for_another_machine_is_told(tree: Path) -> None:
    raw = bytearray((tree / "libbase.so").read_bytes())
    machine = slice(18, 20)
    raw[machine] = (21).to_bytes(2, "little")  # EM_PPC64
    (tree / "libforeign.so").write_bytes(raw)
    found = problems(libraries.check([tree], search=[tree]))
    assert found["libforeign.so"].startswith("is for EM_PPC64, and this is ")


def test_code_for_graphics_cards_is_left_out(tree: Path) -> None:
    raw = bytearray((tree / "libbase.so").read_bytes())
    machine = slice(18, 20)
    raw[machine] = (224).to_bytes(2, "little")  # EM_AMDGPU
    (tree / "Kernels.so-000-gfx1100.hsaco").write_bytes(raw)
    verdict = libraries.check([tree], search=[tree])
    assert verdict.reason is None
    assert verdict.checked == 3


def test_a_folder_without_libraries_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UsageError, match="there is no program and no library"):
        libraries.check([tmp_path])
