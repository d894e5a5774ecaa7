"""What hipify leaves behind of a CUDA source: every kind, and nothing that only looks so."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zluda_stack.catalog.porting import Severity, porting
from zluda_stack.port.lexer import read
from zluda_stack.port.preprocessor import left_out
from zluda_stack.port.source import scan, unportable

FACTS = porting()
KERNEL = "__global__ void k(int *x) {\n%s\n}\n"


def found(text: str) -> list[tuple[int, str, str]]:
    return [(each.line, each.kind, each.name) for each in unportable(text, FACTS)]


def kinds(text: str) -> set[str]:
    return {each.kind for each in unportable(text, FACTS)}


@pytest.mark.parametrize(
    ("statement", "instruction"),
    [
        ('asm("mov.u32 %0, %%laneid;" : "=r"(x));', "mov.u32"),
        ('asm volatile ("{\\n\\t.reg .pred p;\\n\\tsetp.eq.u32 p, %0, 0;\\n}");', "setp.eq.u32"),
        ('__asm__ __volatile__("bar.sync 1, 64;");', "bar.sync"),
        (
            'asm volatile("mma.sync.aligned.m16n8k8 "\n"{%0},"\n: "+f"(a));',
            "mma.sync.aligned.m16n8k8",
        ),
        ('asm(R"ptx(\n  @p bra.uni L;\n)ptx");', "bra.uni"),
        ('asm("trap;");', "trap"),
    ],
)
def test_inline_ptx_is_not_convertible_and_named_by_its_first_instruction(
    statement: str, instruction: str
) -> None:
    (one,) = unportable(KERNEL % statement, FACTS)
    assert (one.line, one.kind, one.name) == (2, "inline-ptx", instruction)
    assert one.severity is Severity.NOT_CONVERTIBLE


@pytest.mark.parametrize(
    "statement",
    [
        '// asm("mov.u32 %0, %%laneid;");',
        '/* asm("mov.u32 %0, %%laneid;"); */',
        'const char *s = "asm(\\"mov.u32 %0;\\")";',
        'const char *s = R"(asm("mov.u32 %0;");)";',
        'asm volatile("" ::: "memory");',
        'asm volatile("s_waitcnt vmcnt(0)");',
        'asm volatile("v_mov_b32 %0, %1" : "=v"(x) : "v"(y));',
        'asm volatile("rdtsc" : "=a"(lo), "=d"(hi));',
        "int basm(int); basm (3);",
    ],
)
def test_what_is_no_ptx_is_not_told(statement: str) -> None:
    assert found(KERNEL % statement) == []


def test_assembly_of_a_file_for_the_host_is_the_hosts() -> None:
    assert found('int f() { asm volatile("fmla.v4 x, y;"); return 1; }') == []


def test_ptx_in_a_header_without_anything_else_of_a_card() -> None:
    header = 'inline int f(int x) { asm("lop3.b32 %0, %1, %1, %1, 0x96;" : "=r"(x)); return x; }'
    assert kinds(header) == {"inline-ptx"}
    for others in ("vadd.f32 s0, s1, s2;", "mov.w r0, r1;", "b.ne loop;", "add.w r0, r1;"):
        assert kinds(f'int f() {{ asm volatile("{others}"); return 0; }}') == set()


def test_assembly_whose_text_is_a_macro_is_to_be_looked_at() -> None:
    (one,) = unportable(KERNEL % "asm volatile(LOAD_TILE);", FACTS)
    assert (one.kind, one.severity) == ("inline-assembly", Severity.LOOK_AT)


def test_what_stands_for_an_instruction_is_said() -> None:
    (one,) = unportable(KERNEL % 'asm("prmt.b32 %0, %1, %2, %3;" : "=r"(x));', FACTS)
    assert "__byte_perm" in one.instead


@pytest.mark.parametrize(
    ("line", "kind", "severity"),
    [
        ("x = __shfl_xor_sync(0xffffffff, x, 1);", "warp-mask", Severity.BY_HAND),
        ("if (threadIdx.x % 32 == 0) return;", "warp-size", Severity.LOOK_AT),
        ("int w = threadIdx . x >> 5;", "warp-size", Severity.LOOK_AT),
        ("unsigned b = __ballot(x);", "ballot-width", Severity.LOOK_AT),
        ("x = __reduce_add_sync(m, x);", "warp-reduce", Severity.BY_HAND),
        ("x = __fadd_rz(x, y);", "rounding", Severity.BY_HAND),
        ("x = __vadd4(x, y);", "packed-integers", Severity.BY_HAND),
        ("__nanosleep(10);", "device-function", Severity.BY_HAND),
        ("child<<<1, 32>>>(x);", "dynamic-parallelism", Severity.NOT_CONVERTIBLE),
        ("nvcuda::wmma::fill_fragment(f, 0);", "wmma", Severity.BY_HAND),
        ("auto c = cg::this_cluster();", "clusters", Severity.NOT_CONVERTIBLE),
        ("cuTensorMapEncodeTiled(m);", "tma", Severity.NOT_CONVERTIBLE),
    ],
)
def test_code_of_the_card(line: str, kind: str, severity: Severity) -> None:
    (one,) = {each.kind: each for each in unportable(KERNEL % line, FACTS)}.values()
    assert (one.kind, one.line, one.severity) == (kind, 2, severity)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("#include <cutlass/gemm/device/gemm.h>", "cutlass"),
        ('#include "cute/tensor.hpp"', "cutlass"),
        ("#  include <cooperative_groups/reduce.h>", "cooperative-groups"),
        ("#include <cuda/barrier>", "libcu++"),
        ("#include <NvInfer.h>", "tensorrt"),
        ("#include <nvml.h>", "nvml"),
        ("#include <cupti.h>", "cupti"),
        ("#include <optix_stubs.h>", "optix"),
        ("#include <npp.h>", "npp"),
        ("#include <nvjpeg.h>", "nvjpeg"),
        ("#include <nvcuvid.h>", "video"),
        ("#include <cufile.h>", "cufile"),
        ("#include <cudnn_frontend.h>", "cudnn-graph"),
        ("#include <cudnn.h>", "cudnn"),
        ("#include <cuda_egl_interop.h>", "graphics"),
        ("#include <nv-p2p.h>", "gpudirect"),
        ("#include <nvshmem.h>", "nvshmem"),
        ("#include <nvtx3/nvToolsExt.h>", "nvtx"),
        ("#include <cusparse.h>\n#include <nvcomp/lz4.h>", "nvidia-library"),
        ("texture<float, 2> t;", "texture-reference"),
        ("surface<void, cudaSurfaceType2D> s;", "surface-reference"),
        ("void f() { cuModuleLoadData(&m, p); }", "module"),
        ('const char *p = ".version 7.0\\n.target sm_80\\n.visible .entry k() {}";', "ptx-text"),
        ("void f() { cudaGraphConditionalHandleCreate(&h, g, 0, 0); }", "no-counterpart"),
        ("#if __CUDA_ARCH__ >= 800\n#endif", "cuda-arch"),
    ],
)
def test_libraries_and_interfaces(text: str, kind: str) -> None:
    assert kinds(text) == {kind}


@pytest.mark.parametrize(
    "text",
    [
        "#include <thrust/sort.h>\n#include <cub/cub.cuh>\n#include <nccl.h>\n#include <nvrtc.h>",
        "#include <cublasLt.h>\n#include <cufft.h>\n#include <curand_kernel.h>",
        "int main() { int *p; cudaMalloc(&p, 4); k<<<1, 32>>>(p); cudaFree(p); }",
        "#define __trap() abort()",
        "__device__ int table[] = {1, 2}; int main() { k<<<1, 2>>>(); }",
        "__host__ __device__ int both(int x) { return x; }",
        "int percent = count % 32; int high = bits >> 5;",
    ],
)
def test_what_hipify_converts_is_not_told(text: str) -> None:
    assert found(text) == []


def test_calls_are_counted_with_those_that_become_nothing() -> None:
    calls = scan(
        "void f() { cudaMalloc(&p, 4); cudaFree (p); cublasSgemm(h); ncclAllReduce(a);\n"
        "  // cudaFree(q);\n"
        '  puts("cudaMemcpy(");  cudaD3D11GetDevice(&d, a); cudaSetDevice<int>(1); }',
        FACTS,
    ).calls
    assert calls.by_interface == {"the CUDA runtime": 4, "cuBLAS": 1, "NCCL": 1}
    assert calls.missing == {"cudaD3D11GetDevice": 1}
    assert (calls.total, calls.convertible) == (6, 5)


def test_code_that_a_hip_build_leaves_out_does_not_count() -> None:
    text = (
        '#ifdef USE_ROCM\nint a;\n#else\nasm("mov.u32 %0, 1;");\n__global__ void k();\n#endif\n'
        "#if !defined(GGML_USE_HIP) && X > 3\nx = __vadd4(x, y);\n#endif\n"
        "#if 0\ncudaD3D9GetDevice(p);\n#endif\n"
        "#if X\ny = __vsub4(x, y);\n#endif\n"
    )
    assert [line for line, *_ in found(text)] == [14]


def test_a_launch_from_the_host_beside_unlike_branches_is_no_nested_one() -> None:
    text = (
        "__global__ void k() {\n#ifdef A\n  if (x) {\n#else\n  if (y) {\n#endif\n  }\n}\n"
        "void f() { k<<<1, 1>>>(); }\n"
    )
    assert found(text) == []


@pytest.mark.parametrize(
    ("condition", "dead"),
    [
        ("defined(HIP)", False),
        ("!defined(HIP)", True),
        ("!defined HIP", True),
        ("defined(CUDA)", True),
        ("defined(OTHER)", False),
        ("!defined(OTHER)", False),
        ("defined(CUDA) || X == 3", False),
        ("defined(CUDA) && X == 3", True),
        ("!(defined(HIP) || (X > 3))", True),
        ("!(defined(HIP) && (X > 3))", False),
        ("(defined(HIP)) == 0", False),
        ("(X > (3)) && !defined(HIP)", True),
        ("CUDA >= 800", True),
        ("CUDA < 800", False),
        ("CUDA", True),
        ("HIP >= 800", False),
        ("CUDA + 1 > 0", False),
        ("CUDA > OTHER", False),
        ("defined(HIP) && CUDA >= 700L", True),
        ("0", True),
        ("1", False),
        ("0 || 1", False),
        ("X(1, 2) && 0", True),
        ("&& ||", False),
        ("(" * 5000, False),
        ("!" * 5000 + "defined(HIP)", False),
    ],
)
def test_conditions(condition: str, dead: bool) -> None:
    def known(name: str) -> bool | None:
        return {"HIP": True, "CUDA": False}.get(name)

    assert bool(left_out(f"#if {condition}\nx\n#endif\n", known)) == dead


PIECES = st.sampled_from(
    [
        *"\"'\\/*\n ()x",
        "//",
        "/*",
        "*/",
        'R"(',
        ')"',
        'R"d(',
        ')d"',
        "1'0",
        "#include <a>",
        "u8",
        "L",
    ]
)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_the_text_without_comments_and_literals_keeps_its_places(text: str) -> None:
    source = read(text)
    assert len(source.code) == len(text)
    assert [at for at, char in enumerate(source.code) if char == "\n"] == [
        at for at, char in enumerate(text) if char == "\n"
    ]
    changed = [at for at in range(len(text)) if source.code[at] not in (text[at], " ", '"')]
    assert changed == []


COMMENT = st.text("ab'\"(<>#\\ ", max_size=8).map(lambda inner: f"/*{inner}*/")
LINE = st.text("ab'\"(*/<>#", max_size=8).map(lambda inner: f"//{inner}\n")
STRING = st.text("ab'(*/<>#", max_size=8).map(lambda inner: f'"{inner}"')
RAW = st.text("ab'\"(*/<>\\\n", max_size=8).map(lambda inner: f'R"~({inner})~"')
HIDING = st.one_of(COMMENT, LINE, STRING, RAW)


@given(st.lists(HIDING, max_size=5), st.lists(HIDING, max_size=5))
def test_a_call_is_found_wherever_it_stands_and_only_there(
    before: list[str], behind: list[str]
) -> None:
    text = ";".join(before) + ";MARK;" + ";".join(behind)
    code = read(text).code
    assert re.findall(r"\w+", code.replace("R", " ")) == ["MA", "K"]
    assert code.index("MA") == text.index("MARK")


@given(
    st.lists(
        PIECES | st.sampled_from(["asm(", "#if ", "#endif\n", "__global__", "{", "}", "<<<"])
    ).map("".join)
)
def test_any_text_can_be_scanned(text: str) -> None:
    lines = text.count("\n") + 1
    assert all(1 <= each.line <= lines for each in scan(text, FACTS).unportable)


def test_every_rule_names_a_source_of_the_catalogue() -> None:
    named = {rule.source for rule in FACTS.rules} | {one.source for one in FACTS.interfaces}
    assert named == set(FACTS.sources)
    kinds_ = [rule.kind for rule in FACTS.rules]
    assert len(kinds_) == len(set(kinds_))
