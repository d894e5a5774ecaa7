"""What is read out of a converter's words, and what it leaves in silence."""

from __future__ import annotations

import pytest

from zluda_stack.catalog.porting import Severity, porting
from zluda_stack.port.hipify import Conversion, conversion, note, without_note

SOURCE = """\
#include <cuda_runtime.h>
#include <cublas_v2.h>
__global__ void kernel(float *a) {
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    a[lane] = 1;
}
int main() {
    float *a, *b;
    cudaMalloc(&a, 4);
    cudaMalloc(&b, 4);
    cuMemAlloc(0, 4);
    cudaGraphConditionalHandle handle;
    kernel<<<1, 32>>>(a);
    cudaFooUnknown();
}
"""
# As hipify-perl 7.0.2 of Debian writes it for SOURCE.
TOLD = """\
  source.cu:13: warning: unsupported HIP identifier: cudaGraphConditionalHandle
  warning: source.cu:#13 :     cudaGraphConditionalHandle handle;
  warning: source.cu:#15 :     cudaFooUnknown();

[HIPIFY] info: file 'source.cu' statistics:
  CONVERTED refs count: 5
  TOTAL lines of code: 16
  WARNINGS: 3
[HIPIFY] info: CONVERTED refs by names:
  cuMemAlloc => hipMalloc: 3
  cublas_v2.h => hipblas.h: 1
  cudaMalloc => hipMalloc: 3
  cuda_runtime.h => hip/hip_runtime.h: 1
"""
FACTS = porting()


def of(source: str, told: str = "") -> Conversion:
    return conversion(source, told, FACTS)


def places(found: Conversion) -> list[tuple[int, str]]:
    return [(one.line, one.name) for one in found.to_do]


def test_names_are_counted_by_what_the_source_has_of_them() -> None:
    found = of(SOURCE, TOLD)
    counts = {(one.cuda, one.hip): one.count for one in found.converted}
    # The converter itself counts by the new name: three for each.
    assert counts["cudaMalloc", "hipMalloc"] == 2
    assert counts["cuMemAlloc", "hipMalloc"] == 1
    assert found.by_library == {"the CUDA runtime": 2, "headers": 2, "the CUDA driver": 1}


def test_what_the_converter_does_not_know_is_left_to_do_once() -> None:
    found = of(SOURCE, TOLD)
    assert (13, "cudaGraphConditionalHandle") in places(found)
    assert (15, "cudaFooUnknown") in places(found)
    assert len(set(places(found))) == len(places(found))


def test_inline_ptx_is_found_though_the_converter_is_silent() -> None:
    assert (5, "mov.u32") in places(of(SOURCE, ""))


def test_what_stands_in_comments_and_literals_is_not_left_to_do() -> None:
    source = '// cudaFooUnknown\nconst char *a = "cudaBarUnknown";\n'
    told = "  warning: s.cu:#1 : // cudaFooUnknown\n  warning: s.cu:#2 : cudaBarUnknown\n"
    assert of(source, told).to_do == ()


@pytest.mark.parametrize(
    "own",
    [
        "#define cudaCheck(call) call",
        "#  define cudaCheck(call) \\\n  call",
        "static void cudaCheck(int code) {\n}",
        "inline const char *cudaCheck(int code, int line)\n{ return 0; }",
    ],
)
def test_a_name_of_the_programs_own_is_not_cudas(own: str) -> None:
    source = f"{own}\nint main() {{ cudaCheck(0); }}\n"
    line = source.splitlines().index("int main() { cudaCheck(0); }") + 1
    told = f"  warning: source.cu:#{line} : int main() {{ cudaCheck(0); }}\n"
    assert of(source, told).to_do == ()
    assert places(of(source.replace(own, ""), told.replace(f"#{line}", "#2"))) == [(2, "cudaCheck")]


@pytest.mark.parametrize(
    ("words", "name", "severity"),
    [
        ('unsupported device function "__foo": __foo(1);', "__foo", Severity.NOT_CONVERTIBLE),
        ("unsupported device data type identifier: __foo", "__foo", Severity.NOT_CONVERTIBLE),
        ("unsupported hipDNN identifier: CUDNN_FOO", "CUDNN_FOO", Severity.NOT_CONVERTIBLE),
        ("experimental ROCm HIP identifier: cudaFoo 6.4.0", "cudaFoo", Severity.BY_HAND),
        # hipify-clang's.
        ("'cudaFoo' is unsupported in 'HIP'.", "cudaFoo", Severity.NOT_CONVERTIBLE),
        (
            "'cudaFoo' is experimental in 'HIP'; to hipify it, use the '--experimental' option.",
            "cudaFoo",
            Severity.BY_HAND,
        ),
    ],
)
def test_every_warning_that_asks_for_work(words: str, name: str, severity: Severity) -> None:
    for place in ("  source.cu:1: ", "/home/a folder/source.cu:1:5: "):
        (one,) = of(f"{name}(1);\n", f"{place}warning: {words}\n").to_do
        assert (one.line, one.name, one.severity) == (1, name, severity)


def test_a_header_is_reported_where_it_is_included() -> None:
    told = "/home/s.cu:1:10: warning: 'cudaFoo.h' is unsupported header in 'HIP'.\n"
    assert places(of("#include <cudaFoo.h>\n", told)) == [(1, "cudaFoo.h")]


def test_a_deprecated_name_is_converted_and_asks_for_nothing() -> None:
    told = "  s.cu:1: warning: deprecated CUDA identifier: cudaMemcpyToArray since CUDA 10.1\n"
    assert of("cudaThreadExit();\n", told).to_do == ()


def test_hipify_clangs_table_is_counted_as_it_stands() -> None:
    told = "[HIPIFY] info: CONVERTED refs by names:\n  cudaMalloc: 2\n  cuda.h: 1\n"
    found = of("", told)
    assert [(one.cuda, one.hip, one.count) for one in found.converted] == [
        ("cudaMalloc", "", 2),
        ("cuda.h", "", 1),
    ]


def test_the_note_is_comments_only_and_absent_when_nothing_is_left() -> None:
    found = of(SOURCE, TOLD)
    lines = note(found).splitlines()
    assert len(lines) == 1 + len(found.to_do)
    assert all(line.startswith("//") and not line.endswith("\\") for line in lines)
    assert note(of("int main() {}\n")) == ""


def test_a_note_of_an_earlier_conversion_is_taken_off_again() -> None:
    noted = note(of(SOURCE, TOLD)).encode()
    assert without_note(noted + SOURCE.encode()) == SOURCE.encode()
    assert without_note(b"\n" + noted) == b"\n" + noted


@pytest.mark.parametrize(
    "told", ["", "\x00\n:::", "  x:99: warning: unsupported HIP identifier: a"]
)
def test_any_words_can_be_read(told: str) -> None:
    assert of("int a;\n", told).to_do == ()
