"""The catalogue's libraries of CUDA, and what it says of device code."""

from __future__ import annotations

import pytest

from zluda_stack.catalog import coverage
from zluda_stack.catalog.cuda import CudaLibraries, Role, cuda_libraries, zluda_code


@pytest.fixture(scope="module")
def libraries() -> CudaLibraries:
    return cuda_libraries()


def test_the_replaced_libraries_are_those_that_the_coverage_has(libraries: CudaLibraries) -> None:
    replaced = {one.files[0] for one in libraries.libraries if one.role is Role.REPLACED}
    assert replaced == {name.partition(".so")[0] for name in coverage.load().libraries}


@pytest.mark.parametrize(
    ("file", "title"),
    [
        ("libcublas.so.13", "cuBLAS"),
        ("libcublasLt.so", "cuBLASLt"),
        ("libcudart-5a077122.so.12.0.107", "the CUDA runtime"),
        ("libcublas.a", None),
        ("libc.so.6", None),
    ],
)
def test_a_library_is_known_by_its_file(
    libraries: CudaLibraries, file: str, title: str | None
) -> None:
    found = libraries.named(file)
    assert (found.title if found else None) == title


@pytest.mark.parametrize(
    ("function", "title"),
    [
        ("cuInit", "the driver"),
        ("cudaMalloc", "the CUDA runtime"),
        ("cublasCreate_v2", "cuBLAS"),
        ("cublasLtCreate", "cuBLASLt"),
        ("cusparseLtInit", "cuSPARSELt"),
        ("cuFileRead", "cuFile"),
        ("ncclAllReduce", "NCCL"),
        ("nvmlInit_v2", "NVML"),
        ("cucumber", None),
        ("printf", None),
    ],
)
def test_a_function_is_known_by_how_its_name_begins(
    libraries: CudaLibraries, function: str, title: str | None
) -> None:
    found = libraries.with_function(function)
    assert (found.title if found else None) == title


def test_every_function_of_the_coverage_belongs_to_its_own_library(
    libraries: CudaLibraries,
) -> None:
    for file, functions in coverage.load().libraries.items():
        owner = libraries.named(file)
        for name in functions.implemented | functions.not_implemented:
            assert libraries.with_function(name) is owner, name


def test_what_is_said_of_device_code_does_not_contradict_itself() -> None:
    code, opcodes = zluda_code(), coverage.load().ptx_opcodes_parsed
    registers = code.special_registers
    groups = (registers.known, registers.leaves_out_kernel, registers.refuses_module)
    assert sum(map(len, groups)) == len(frozenset().union(*groups))
    for form in (*code.unknown_forms, *(form for forms in code.forms.values() for form in forms)):
        assert form.partition(".")[0] in opcodes
