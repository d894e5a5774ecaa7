"""`check` on single files: what is found, the verdict, what to do, and the exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit import fat_binaries
from tests.unit.command_line import Outcome, run, settle
from tests.unit.cuda_programs import cubin, library, module, needs_compiler, ptx
from tests.unit.cuda_toolkit import FORMS, Toolkit
from tests.unit.fat_binaries import container
from zluda_stack.errors import ExitCode

WMMA = "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1, %r2}, [%rd1], %r9;"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield settle(tmp_path, monkeypatch)


def facts(path: Path, *options: str) -> Any:
    """The JSON of `check` on one file: the whole report, with that file's own facts as "file"."""
    told = run("check", "--json", str(path), *options)
    assert "error" not in told.json, told.out
    (one,) = [file for file in told.json["files"] if file["file"] == str(path)]
    return {**told.json, "one": one, "code": told.code, "ids": [gap["id"] for gap in one["gaps"]]}


@needs_compiler
def test_a_library_with_ptx_for_an_older_card_will_likely_run(tmp_path: Path) -> None:
    found = facts(library(tmp_path / "libgood.so", container(module(), cubin("_Z3addPf"))))
    assert (found["verdict"], found["code"], found["ids"]) == ("will likely run", 0, [])
    (ptx_module,) = found["one"]["ptx"]
    assert ptx_module["name"] == "libgood.1.sm_80.ptx"
    assert (ptx_module["version"], ptx_module["target"]) == ("8.0", "sm_80")
    assert [one["name"] for one in found["one"]["cubins"]] == ["libgood.1.sm_80.cubin"]


@needs_compiler
def test_machine_code_alone_cannot_run_and_names_its_kernels(tmp_path: Path) -> None:
    path = library(tmp_path / "libreal.so", container(cubin("_Z3addPf", "reduce", sm=86)))
    found = facts(path)
    assert (found["verdict"], found["code"], found["ids"]) == ("cannot run", 3, ["ZSC201"])
    assert found["one"]["gaps"][0]["used_by"] == ["add(float*)", "reduce"]
    told = run("check", str(path))
    assert "machine code for NVIDIA's cards only (sm_86)" in told.out
    assert "what to do: Rebuild with PTX" in told.out


@needs_compiler
def test_ptx_for_86_only_is_told_with_the_zluda_cc_that_helps(tmp_path: Path) -> None:
    path = library(tmp_path / "lib86.so", container(module(sm=86)))
    found = facts(path)
    assert (found["verdict"], found["code"], found["ids"]) == ("may run, with gaps", 6, ["ZSC202"])
    assert "ZLUDA_CC=8.6" in found["one"]["gaps"][0]["fix"]
    assert facts(path, "--zluda-cc", "8.6")["verdict"] == "will likely run"


@needs_compiler
def test_one_module_for_an_older_card_is_enough(tmp_path: Path) -> None:
    path = library(tmp_path / "lib.so", container(module(sm=80), module(sm=86)))
    assert facts(path)["verdict"] == "will likely run"


@needs_compiler
def test_code_for_one_kind_of_card_alone_is_a_gap(tmp_path: Path) -> None:
    code = container(module(sm=90, flags=fat_binaries.ARCHITECTURE_SPECIFIC, suffix="a"))
    found = facts(library(tmp_path / "lib90a.so", code))
    assert found["ids"] == ["ZSC203"]
    assert found["one"]["ptx"][0]["architecture"] == "sm_90a"


@needs_compiler
def test_an_unknown_instruction_names_the_kernel_that_uses_it(tmp_path: Path) -> None:
    path = library(tmp_path / "libwmma.so", container(module(f"{WMMA} ret;")))
    (gap,) = facts(path)["one"]["gaps"]
    assert (gap["id"], gap["subject"], gap["used_by"]) == ("ZSC206", "wmma", ["add(float*)"])


@pytest.mark.parametrize(
    ("body", "id_", "subject"),
    [
        (
            "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%r1}, {%r2}, {%r3}, {%r1};",
            "ZSC207",
            "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32",
        ),
        ("fma.rn.bf16 %h1, %h2, %h3, %h4;", "ZSC207", "fma.rn.bf16"),
        ("mov.u32 %r1, %envreg2;", "ZSC208", "%envreg"),
        ("mov.u64 %rd1, %clock64;", "ZSC208", "%clock64"),
        ("mov.u32 %r1, %cluster_ctaid.x;", "ZSC208", "%cluster_ctaid"),
        ("{.reg .b32 t;wgmma.fence.sync.aligned;}", "ZSC206", "wgmma"),
        ("@%p1 brkpt;", "ZSC206", "brkpt"),
    ],
)
def test_what_else_the_parser_does_not_take(
    tmp_path: Path, body: str, id_: str, subject: str
) -> None:
    path = tmp_path / "kernel.ptx"
    path.write_bytes(ptx(body))
    (gap,) = facts(path)["one"]["gaps"]
    assert (gap["id"], gap["subject"], gap["used_by"]) == (id_, subject, ["add(float*)"])


@pytest.mark.parametrize(
    "body",
    [
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};",
        "fma.rn.bf16x2 %r1, %r2, %r3, %r4; fma.rn.ftz.f32 %f1, %f2, %f3, %f4;",
        "// wmma.load.a.sync\n/* wgmma.fence; */ ret;",
        '.pragma "wmma.load.a";',
        "mov.u32 %r1, %tid.x; ld.shared::cta.b32 %r1, [%r2]; mov.u32 %r2, %clocks;",
        "call.uni (r), wmma_like, (p);\n.loc 1 2 3\nadd.s32 %r1, %r1, 1;",
    ],
)
def test_what_the_parser_takes_and_what_is_no_instruction_is_no_gap(
    tmp_path: Path, body: str
) -> None:
    path = tmp_path / "kernel.ptx"
    path.write_bytes(ptx(body))
    assert facts(path)["ids"] == []


def test_a_comment_between_version_and_target_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "kernel.ptx"
    path.write_bytes(ptx().replace(b".target", b"// a comment\n .target"))
    assert facts(path)["one"]["ptx"][0]["target"] == "sm_80"


@needs_compiler
def test_of_two_modules_of_one_fat_binary_the_better_counts(tmp_path: Path) -> None:
    """ZLUDA takes the last module that it can parse whole."""
    both = container(module("ret;", sm=75), module(WMMA, sm=80))
    assert facts(library(tmp_path / "libboth.so", both))["ids"] == []


@needs_compiler
def test_kernels_without_ptx_beside_others_are_a_gap(tmp_path: Path) -> None:
    path = library(tmp_path / "libhalf.so", container(module()), container(cubin("lost")))
    found = facts(path)
    assert found["ids"] == ["ZSC204"]
    assert found["one"]["gaps"][0]["used_by"] == ["lost"]


@needs_compiler
def test_machine_code_without_kernels_is_no_loss(tmp_path: Path) -> None:
    """nvcc's device linker adds such a fat binary to every program."""
    path = library(tmp_path / "lib.so", container(cubin()), container(module()))
    assert facts(path)["verdict"] == "will likely run"


@needs_compiler
def test_code_outside_nvccs_sections_is_found(tmp_path: Path) -> None:
    path = library(tmp_path / "lib.so", container(module()), section="code_of_mine")
    (found,) = facts(path)["one"]["ptx"]
    assert (found["section"], found["container"]) == ("code_of_mine", 1)
    path = library(tmp_path / "libtext.so", ptx(WMMA) + b"\0", section=".rodata.text")
    found = facts(path)
    assert (found["one"]["ptx"][0]["container"], found["ids"]) == (None, ["ZSC206"])


@needs_compiler
def test_missing_functions_are_named_with_their_library(tmp_path: Path) -> None:
    path = library(
        tmp_path / "libuser.so",
        container(module()),
        imports=["cublasSgemm_v2", "cublasStrsmBatched", "cuFlyToTheMoon", "cudaMalloc", "cos"],
        needed=["libcublas.so.13", "libcudart.so.13"],
    )
    found = facts(path)
    gaps = {gap["id"]: gap["subject"] for gap in found["one"]["gaps"]}
    assert gaps == {"ZSC301": "cublasStrsmBatched", "ZSC302": "cuFlyToTheMoon"}
    support = {one["name"]: one["support"] for one in found["one"]["imports"]}
    assert support == {
        "cublasSgemm_v2": "implemented",
        "cublasStrsmBatched": "not implemented",
        "cuFlyToTheMoon": "unknown to ZLUDA",
        "cudaMalloc": None,
    }


@needs_compiler
def test_a_library_that_zluda_has_in_name_only_is_one_gap(tmp_path: Path) -> None:
    imports = ["cufftExecC2C", "cufftPlan1d"]
    path = library(tmp_path / "lib.so", imports=imports, needed=["libcufft.so.11"])
    (gap,) = facts(path)["one"]["gaps"]
    assert (gap["id"], gap["subject"]) == ("ZSC305", "libcufft.so")


@needs_compiler
@pytest.mark.parametrize(
    ("name", "id_"),
    [
        ("libnccl.so.2", "ZSC306"),
        ("libcurand.so.10", "ZSC306"),
        ("libcupti.so.12", "ZSC307"),
        ("libnvJitLink.so.12", "ZSC308"),
    ],
)
def test_libraries_that_zluda_does_not_replace_are_told(
    tmp_path: Path, name: str, id_: str
) -> None:
    path = library(tmp_path / "lib.so", container(module()), needed=[name])
    assert facts(path)["ids"] == [id_]
    opened = library(tmp_path / "libopens.so", container(module()), words=[name])
    assert facts(opened)["ids"] == [id_]
    assert facts(opened)["one"]["opens"] == [name]


@needs_compiler
def test_a_static_runtime_is_recognised_and_told_what_it_asks_for(tmp_path: Path) -> None:
    says = "CUDA driver version is insufficient for CUDA runtime version"
    words = [says, "libcuda.so.1", "cuInit", "cuFlushGPUDirectRDMAWrites"]
    found = facts(library(tmp_path / "lib.so", container(module()), words=words))
    assert found["one"]["static_cudart"]
    assert found["verdict"] == "will likely run"
    (note,) = found["one"]["gaps"]
    assert note["id"] == "ZSC304"
    assert "implements 1 of the 2" in note["text"]


@needs_compiler
def test_functions_that_are_looked_up_by_name_count_without_a_runtime(tmp_path: Path) -> None:
    words = ["libcublas.so.12", "cublasStrsmBatched", "cublasCreate_v2"]
    (gap,) = facts(library(tmp_path / "lib.so", words=words))["one"]["gaps"]
    assert gap["id"] == "ZSC303"
    assert "cublasStrsmBatched" in gap["text"]
    assert "cublasCreate" not in gap["text"]


@needs_compiler
def test_a_library_that_zluda_brings_itself_is_not_judged(tmp_path: Path) -> None:
    found = facts(library(tmp_path / "libcublas.so.12", container(cubin("gemm"))))
    assert (found["verdict"], found["code"], found["ids"]) == ("replaced by ZLUDA", 0, ["ZSC309"])


@needs_compiler
def test_a_library_without_cuda_is_said_to_have_none(tmp_path: Path) -> None:
    told = run("check", str(library(tmp_path / "libplain.so")))
    assert told.code == 0
    assert "no CUDA in it" in told.out


@needs_compiler
def test_relocatable_code_that_the_driver_would_link_is_a_gap(tmp_path: Path) -> None:
    code = container(module()) + container(module())
    path = library(tmp_path / "lib.so", code, section="__nv_relfatbin")
    assert facts(path)["ids"] == ["ZSC205"]


@needs_compiler
def test_another_machine_is_told_by_its_name(tmp_path: Path) -> None:
    path = library(tmp_path / "lib.so", container(module()))
    raw = bytearray(path.read_bytes())
    raw[18:20] = (183).to_bytes(2, "little")
    path.write_bytes(raw)
    found = facts(path)
    assert (found["verdict"], found["ids"], found["code"]) == ("cannot run", ["ZSC101"], 3)
    assert "aarch64" in found["one"]["gaps"][0]["text"]


def test_32_bit_and_big_endian_programs_cannot_run(tmp_path: Path) -> None:
    powerpc = tmp_path / "powerpc"
    powerpc.write_bytes(b"\x7fELF\x02\x02\x01" + bytes(9) + b"\0\3\0\x15" + bytes(80))
    old = tmp_path / "i386"
    old.write_bytes(b"\x7fELF\x01\x01\x01" + bytes(9) + b"\3\0\3\0" + bytes(80))
    for path in (powerpc, old):
        told = run("check", str(path))
        assert (told.code, "ZSC101" in told.out) == (ExitCode.REFUSED, True), told


@needs_compiler
def test_a_library_beside_the_program_is_brought_in_by_its_search_path(tmp_path: Path) -> None:
    library(tmp_path / "lib" / "libkernels.so", container(cubin("lost")))
    program = library(tmp_path / "program", needed=["libkernels.so"], runpath="$ORIGIN/lib")
    told = run("check", "--json", str(program))
    files = {file["file"]: file for file in told.json["files"]}
    assert files[str(tmp_path / "lib" / "libkernels.so")]["verdict"] == "cannot run"
    assert files[str(program)]["needs"] == [
        {
            "library": "libkernels.so",
            "origin": "given",
            "file": str(tmp_path / "lib" / "libkernels.so"),
        }
    ]


@pytest.mark.parametrize("form", FORMS)
def test_modules_are_those_that_cuobjdump_lists_and_imports_those_of_nm(
    toolkit: Toolkit, form: str
) -> None:
    program = toolkit.build(form)
    one = facts(program)["one"]
    listed = toolkit.run("cuobjdump", "-all", "-lptx", "-lelf", str(program))
    names = re.findall(r"^(?:PTX|ELF) file +\d+: (\S+)$", listed, re.MULTILINE)
    for kind, suffix in (("ptx", ".ptx"), ("cubins", ".cubin")):
        assert [module["name"] for module in one[kind]] == [
            name for name in names if name.endswith(suffix)
        ]
        for found in one[kind]:
            assert found["name"].endswith(f".{found['architecture']}{suffix}")
    assert {symbol["name"] for symbol in one["imports"]} == cuda_names_of_nm(program)


def cuda_names_of_nm(program: Path) -> set[str]:
    """The CUDA functions among the undefined dynamic symbols; none for what has no such table."""
    done = subprocess.run(
        ["nm", "-D", "--undefined-only", str(program)], capture_output=True, text=True, check=False
    )
    names = {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()}
    return {name for name in names if re.match(r"(__)?cu(da|blas)?[A-Z]", name)}


def test_a_shared_runtime_is_imported_and_a_static_one_recognised(toolkit: Toolkit) -> None:
    shared = facts(toolkit.build("all compressed, shared cudart"))["one"]
    assert "cudaMalloc" in {symbol["name"] for symbol in shared["imports"]}
    assert not shared["static_cudart"]
    static = facts(toolkit.build("PTX only"))["one"]
    assert static["static_cudart"]
    assert "cuLaunchKernel" in {symbol["name"] for symbol in static["looks_up"]}


def test_a_cubin_of_its_own_cannot_run(toolkit: Toolkit, tmp_path: Path) -> None:
    program = toolkit.build("several architectures")
    toolkit.run("cuobjdump", "-xelf", "all", str(program), cwd=tmp_path)
    verdicts = {facts(path)["verdict"] for path in sorted(tmp_path.glob("*.2.sm_86.cubin"))}
    assert verdicts == {"cannot run"}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", ExitCode.USAGE),
        (b"#!/bin/sh\n", ExitCode.USAGE),
        (b"\x7fELF", ExitCode.USAGE),
        (container(module())[:-9], ExitCode.USAGE),
        (b".version 8.0\n", ExitCode.USAGE),
    ],
    ids=["empty", "a script", "a cut header", "a cut fat binary", "cut PTX"],
)
def test_what_cannot_be_read_is_told_and_not_judged(
    tmp_path: Path, content: bytes, code: int
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    told = run("check", str(path))
    assert told.code == code
    assert "cannot be judged" in told.out
    assert "ZSC103" in told.out


def test_pipes_and_devices_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        told = run("check", path)
        assert told.code == ExitCode.USAGE
        assert "is not a regular file" in told.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["absent-package-of-nobody"],
        ["./absent"],
        [""],
        ["a\0b"],
        ["image:"],
        ["image: "],
        ["/dev/null", "--zluda-cc", "eight"],
        ["x", "--python", "/absent/python"],
    ],
)
def test_a_wrong_command_line_is_answered_with_the_next_step(arguments: list[str]) -> None:
    told = run("check", *arguments)
    assert told.code == ExitCode.USAGE
    assert "\nhint: " in told.err


def test_nothing_that_a_file_says_steers_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "kernel.ptx"
    path.write_bytes(ptx(WMMA, name="k").replace(b"wmma", b"wmma_\x1b[31m"))
    told: Outcome = run("check", str(path))
    assert "\x1b" not in told.out
    json.dumps(told.out)
