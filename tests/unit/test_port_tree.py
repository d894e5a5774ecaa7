"""A folder of CUDA sources as a whole, and what a Python project asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from zluda_stack.catalog.packages import Support, rocm_packages
from zluda_stack.catalog.porting import Severity, porting
from zluda_stack.errors import UsageError
from zluda_stack.port.folder import read_folder
from zluda_stack.port.python import asked_for
from zluda_stack.port.tree import Tree, survey

FACTS = porting()
PACKAGES = rocm_packages()
KERNEL = "__global__ void k(int *x) { %s }\n"


def tree(**texts: str) -> Tree:
    """The survey of files whose names are given with _ for their dots."""
    return survey(((name.replace("_", "."), text) for name, text in texts.items()), FACTS)


def kinds(found: Tree) -> dict[str, int]:
    return {kind.kind: kind.count for kind in found.kinds}


def test_files_without_cuda_do_not_count() -> None:
    found = tree(a_cu=KERNEL % "", b_cpp="int main() {}\n", c_cpp="void f() { cudaFree(p); }\n\n")
    assert (found.files, found.lines, found.kernels, found.device_files) == (2, 3, 1, 1)
    assert (found.calls.total, found.calls.convertible) == (1, 1)


def test_the_hardest_come_first_with_what_stands_for_most_of_them() -> None:
    ptx = 'asm("prmt.b32 %0;"); asm("trap;");\nasm("prmt.b32 %1;");'
    found = tree(a_cu=KERNEL % ptx, b_cu=KERNEL % "x = __vadd4(x, x);\nx = __shfl_sync(m, x, 1);")
    assert list(kinds(found)) == ["inline-ptx", "packed-integers", "warp-mask"]
    first = found.kinds[0]
    assert (first.count, first.files, first.first) == (3, 1, "a.cu:1")
    assert first.severity is Severity.NOT_CONVERTIBLE
    assert first.instead == "__byte_perm"
    assert found.count(Severity.BY_HAND) == 2


def test_a_macro_that_only_cuda_builds_define_hides_what_hangs_on_it() -> None:
    header = "#if !defined(USE_HIP) && ARCH >= 800\n#define HAS_MMA\n#endif\n"
    derived = "#ifdef HAS_MMA\n#define HAS_MORE 1\n#endif\n"
    code = KERNEL % '\n#if HAS_MORE\nasm("mma.sync;");\n#endif\n'
    assert kinds(tree(a_cuh=header + derived, b_cu=code)) == {}
    elsewhere = "#if OTHER\n#define HAS_MMA\n#endif\n"
    assert kinds(tree(a_cuh=header + derived, b_cu=code, c_cuh=elsewhere)) == {"inline-ptx": 1}


def test_what_a_header_for_hip_puts_in_place_is_no_trouble() -> None:
    own = (
        "#include <hip/hip_runtime.h>\n#define __shfl_sync(m, v, l) __shfl(v, l)\n"
        "static __device__ int __vadd4(int a, int b) { return a; }\n"
    )
    code = KERNEL % "x = __vadd4(__shfl_sync(m, x, 0), __vsub4(x, x));"
    found = tree(vendors_hip_h=own, b_cu=code)
    assert kinds(found) == {"packed-integers": 1}
    assert [finding.what.name for finding in found.findings] == ["__vsub4"]
    assert found.own_hip == ("vendors.hip.h",)


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("enable_language(HIP)", True),
        ("project(x LANGUAGES CXX HIP)", True),
        ("find_package(hip REQUIRED)", True),
        ("# find_package(hip)", False),
        ("project(ship LANGUAGES CXX)", False),
    ],
)
def test_a_build_file_shows_that_there_is_a_hip_build(text: str, own: bool) -> None:
    assert bool(survey([("CMakeLists.txt", text)], FACTS).own_hip) == own


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("project(x\n  LANGUAGES CXX CUDA)", "cmake-cuda"),
        ("Enable_Language(CUDA)", "cmake-cuda"),
        ("find_package(CUDAToolkit REQUIRED)", "cmake-findcuda"),
        ("set(CMAKE_CUDA_ARCHITECTURES 80)", "cmake-architectures"),
        ("  nvcc -o x x.cu", "nvcc"),
    ],
)
def test_build_files_are_by_hand(text: str, kind: str) -> None:
    found = survey([("sub/CMakeLists.txt", f"# nvcc\n{text}\n")], FACTS)
    assert kinds(found) == {kind: 1}
    assert found.kinds[0].first == "sub/CMakeLists.txt:2"
    assert found.files == 0


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("requirements.txt", "numpy\ntorch>=2.1  # the framework\n"),
        ("requirements/dev.txt", "x"),
        ("requirements-gpu.in", "torch[opt] ; python_version > '3'"),
        ("environment.yml", "dependencies:\n  - torch=2.1\n"),
        ("pyproject.toml", '[project]\ndependencies = ["torch>=2", "rich"]'),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "^2"\n'),
        ("setup.py", "setup(install_requires=['torch'])"),
        ("train.py", "import os, torch.nn as nn"),
        ("train.py", "def f():\n    from torch import nn\n"),
    ],
)
def test_packages_are_found_where_projects_name_them(file: str, text: str) -> None:
    titles = [asked.package.title for asked in asked_for([(file, text)], PACKAGES)]
    assert titles == ([] if text == "x" else ["PyTorch"])


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("requirements.txt", "# torch\ntorchmetrics\npytorch-lightning\n"),
        ("train.py", '"""\nimport torch\n"""\nimport mytorch\nx = "import torch"'),
        ("notes.py", "import numba\nfrom numba import jit"),
        ("pyproject.toml", 'name = "torch-thing"\ndescription = "for torch"'),
    ],
)
def test_packages_with_such_names_are_others(file: str, text: str) -> None:
    assert asked_for([(file, text)], PACKAGES) == ()


def test_names_are_compared_as_the_index_does() -> None:
    for name in ("flash_attn", "Flash-Attn", "flash.attn"):
        package = PACKAGES.named(name)
        assert package is not None
        assert package.support is Support.SOURCE
    found = PACKAGES.importing("numba.cuda.random")
    assert found is not None
    assert found.title == "Numba's CUDA target"


def test_no_name_belongs_to_two_packages() -> None:
    for each in ("names", "imports"):
        every = [name for package in PACKAGES.packages for name in getattr(package, each)]
        assert len(every) == len(set(every))


def test_a_part_of_a_folder_does_not_pass_for_the_whole(tmp_path: Path) -> None:
    for name in ("a.cu", "b.cu", "c.cu"):
        (tmp_path / name).write_text("// nothing\n")
    assert len(read_folder(tmp_path, most=3).sources) == 3
    with pytest.raises(UsageError, match="more than 2 source files"):
        read_folder(tmp_path, most=2)
