"""`zluda-stack advise` as it is typed: hosts, programs, sources, projects and models."""

from __future__ import annotations

import os
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit import advised
from tests.unit.command_line import CASES, settle, write
from tests.unit.cuda_programs import cubin, library, module, needs_compiler
from tests.unit.fat_binaries import container
from tests.unit.gguf_shapes import SHAPES, write_shape
from tests.unit.planning import configured, host
from zluda_stack.advise.decide import decide
from zluda_stack.advise.question import Question, Subject
from zluda_stack.advise.situation import situation
from zluda_stack.catalog.advice import advice
from zluda_stack.catalog.load import load
from zluda_stack.errors import ExitCode

RADEON = "radeon-rx-7900-xtx"
TWO_CARDS = "dgpu-gfx1100-and-igpu-gfx1036"
KERNEL = "__global__ void k(int *x) { %s }\nint main() { k<<<1, 1>>>(0); cudaFree(0); }\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return settle(tmp_path, monkeypatch)


advise = partial(advised.advise, host=RADEON)
code = partial(advised.code, host=RADEON)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (RADEON, "overview-both"),
        ("rx-6700-xt-gfx1031", "overview-both"),
        ("two-rx-7900-xtx", "overview-both"),
        ("rx-7900-xtx-beside-nvidia", "overview-both"),
        ("igpu-gfx1036-and-dgpu-gfx1201", "overview-both"),
        ("eight-mi300x-gfx942", "overview-native-only"),
        ("radeon-vii-gfx906", "overview-native-only"),
        ("rx-580-gfx803", "overview-vulkan"),
        ("vega-apu-gfx90c", "overview-vulkan"),
        ("igpu-gfx1036-alone", "overview-vulkan"),
        ("bc-250-gfx1013", "overview-vulkan"),
        ("nvidia-only", "nvidia-only"),
        ("laptop-without-gpu-or-docker", "overview-without-card"),
        ("wsl2", "overview-without-card"),
        ("intel-graphics", "overview-without-card"),
        ("amd-card-without-kfd", "card-out-of-reach"),
        ("kfd-without-dri", "card-out-of-reach"),
        ("lxc-hidden-node", "card-out-of-reach"),
        ("amdgpu-blacklisted", "card-out-of-reach"),
        ("only-card-held-by-vfio", "card-out-of-reach"),
        ("rx-6900-xt-kernel-5.11", "card-out-of-reach"),
    ],
)
def test_what_is_open_on_a_machine(machine: str, expected: str) -> None:
    assert code(host=machine) == expected


def test_every_machine_gets_something_to_do() -> None:
    catalog, book, settings = load(), advice(), configured()
    for name in sorted(path.stem for path in CASES.glob("*.json")):
        found = situation(host(name), settings, catalog, None)
        asked = Question(situation=found, subject=Subject(subject="overview"))
        first = decide(asked, book).ways[0]
        assert first.commands or first.elsewhere, name


@pytest.mark.parametrize("name", [RADEON, "eight-mi300x-gfx942", "rx-7900-xtx-beside-nvidia"])
def test_the_answer_is_short(name: str) -> None:
    told = advise(host=name).out
    assert len(told.splitlines()) < 25
    assert "\n   $ " in told


def test_without_docker_it_is_said_what_comes_before_the_command(project: Path) -> None:
    write(project / "src" / "a.cu", KERNEL % "")
    told = advise("src", host="laptop-without-gpu-or-docker")
    lines = told.out.splitlines()
    at = lines.index("   $ zluda-stack toolbox hipify ./src")
    assert lines[at + 1].endswith("containers need Docker, and the docker command is not installed")
    assert any(line.startswith("First: Install Docker Engine") for line in lines)
    (way,) = advise("src", "--json", host="laptop-without-gpu-or-docker").json["advice"]["ways"]
    (missing,) = way["missing"]
    assert missing["command"] == "zluda-stack toolbox hipify ./src"
    assert "first:" not in advise("src").out


def test_an_engine_that_the_card_cannot_reach_is_said_where_the_card_is_needed() -> None:
    told = advise(host="docker-desktop-on-linux").out
    after = {line: told.partition(f"{line}\n")[2].partition("\n")[0] for line in told.splitlines()}
    assert "first: the Docker context" in after["   $ zluda-stack up --profile native"]
    assert "first:" not in after["   $ zluda-stack toolbox hipify ./folder"]
    assert "first:" not in advise().out


def test_the_cpu_needs_no_docker_unless_it_is_wished_for(project: Path) -> None:
    def lacks() -> str:
        told = advise(host="laptop-without-gpu-or-docker").out
        return told.partition("$ zluda-stack up --gpu none\n")[2].partition("\n")[0]

    assert "first:" not in lacks()
    write(project / "zluda-stack.yml", "engine: docker\n")
    assert "first: containers need Docker" in lacks()


def test_an_nvidia_card_runs_cuda_sources_by_itself(project: Path) -> None:
    write(project / "src" / "a.cu", KERNEL % "")
    told = advise("src", host="nvidia-only").out
    assert "1. compile them with nvcc, for the NVIDIA card" in told
    assert "zluda-stack up" not in told
    assert "2." not in told.partition("\n1. ")[2]


def test_a_card_that_is_not_here_is_named() -> None:
    outcome = advise("--gpu", "MI210", host="laptop-without-gpu-or-docker")
    assert "zluda-stack up --profile native --gpu gfx90a" in outcome.out
    assert code("--gpu", "rx 580") == "overview-vulkan"
    assert code("--gpu", "gfx1100") == "overview-both"
    wrong = advise("--gpu", "rx7900")
    assert wrong.code == ExitCode.USAGE
    assert "gfx1100" in wrong.err


def test_a_closed_program_is_checked_and_told_with_its_gaps(project: Path) -> None:
    path = write(project / "notes", "no program")
    assert code(str(path)) == "program-unjudged"


@needs_compiler
def test_programs_by_their_verdict(project: Path) -> None:
    good = library(project / "libgood.so", container(module()))
    real = library(project / "libreal.so", container(cubin("_Z3addPf", sm=86)))
    gaps = library(project / "libgaps.so", container(module(sm=86)))
    assert code(str(good)) == "program-likely"
    assert code(str(real)) == "program-cannot"
    assert code(str(gaps)) == "program-gaps"
    assert code(str(good), "--task", "production") == "program-for-good"
    assert code(str(good), host="radeon-vii-gfx906") == "program-native-only"
    assert code("/bin/ls") == "program-without-cuda"
    told = advise(str(gaps)).out
    assert "may run, with gaps; 1 gap in 1 file" in told
    assert "ZSC202" in told
    assert "zluda-stack run -- ./program" in told
    assert "zluda-stack run -- ./server" in advise(str(good.rename("server"))).out


@needs_compiler
def test_a_folder_of_programs_is_no_folder_of_sources(project: Path) -> None:
    library(project / "app" / "libgood.so", container(module()))
    assert code("app") == "program-likely"
    write(project / "app" / "x.cu", KERNEL % "")
    assert code("app") == "source-clean"


def test_sources_are_counted(project: Path) -> None:
    write(project / "src" / "a.cu", KERNEL % 'asm("trap;");')
    write(project / "src" / "lib" / "b.cuh", "__device__ int f(int x) { return __vadd4(x, x); }\n")
    write(project / "src" / ".git" / "c.cu", KERNEL % "")
    write(project / "src" / "CMakeLists.txt", "enable_language(CUDA)\n")
    outcome = advise("src", "--json").json
    assert outcome["advice"]["code"] == "source-hard"
    tree = outcome["seen"]["tree"]
    assert (tree["files"], tree["lines"], tree["kernels"]) == (2, 3, 1)
    kinds = {kind["kind"]: kind["count"] for kind in tree["kinds"]}
    assert kinds == {"inline-ptx": 1, "packed-integers": 1, "cmake-cuda": 1}
    assert tree["findings"][0]["file"] == "a.cu"
    told = advise("src").out
    assert "2 files with CUDA, 3 lines, 1 kernel" in told
    assert "1 of 1 call of CUDA's functions" in told
    assert "not convertible: inline PTX, 1 in 1 file, first a.cu:1; instead: abort()" in told
    assert "zluda-stack toolbox hipify ./src" in told


def test_links_and_folders_of_tools_are_not_gone_into(project: Path) -> None:
    write(project / "src" / "a.cu", KERNEL % "")
    write(project / "src" / "env" / "pyvenv.cfg", "")
    write(project / "src" / "env" / "b.cu", KERNEL % "")
    write(project / "src" / "node_modules" / "c.cu", KERNEL % "")
    write(project / "elsewhere" / "d.cu", KERNEL % "")
    (project / "src" / "loop").symlink_to(project / "src")
    (project / "src" / "elsewhere").symlink_to(project / "elsewhere")
    (project / "src" / "e.cu").symlink_to(project / "elsewhere" / "d.cu")
    assert "1 file with CUDA" in advise("src").out


def test_one_source_and_other_tasks(project: Path) -> None:
    write(project / "a.cu", KERNEL % "")
    assert code("a.cu") == "source-clean"
    assert code("a.cu", "--task", "try") == "source-try"
    assert code("a.cu", host="rx-580-gfx803") == "source-unserved"
    write(project / "b.cpp", "int main() {}\n")
    assert code("b.cpp") == "source-without-cuda"


def test_sources_with_a_hip_build_keep_it(project: Path) -> None:
    write(project / "src" / "a.cu", KERNEL % "")
    write(project / "src" / "hip.h", "#include <hip/hip_runtime.h>\n")
    assert code("src") == "source-own-hip"


def test_python_projects_get_the_builds_for_rocm(project: Path) -> None:
    write(project / "p" / "requirements.txt", "torch\nvllm\n")
    assert code("p") == "python-rocm"
    assert code("p", "--gpu", "gfx1030") == "python-partly"
    told = advise("p").out
    assert "PyTorch: wheels for ROCm" in told
    assert "$ pip install torch torchvision --index-url" in told
    assert "vLLM: wheels for Python 3.12 and images, ROCm 6.3 or newer" in told
    write(project / "p" / "requirements.txt", "rich\n")
    write(project / "p" / "x.py", "import os\n")
    assert code("p/x.py") == "source-without-cuda"


def test_a_project_of_both_is_told_of_both(project: Path) -> None:
    write(project / "p" / "setup.py", "install_requires=['torch']\n")
    write(project / "p" / "k.cu", KERNEL % "")
    assert code("p") == "source-clean"
    assert "Python packages for a card: PyTorch (setup.py)" in advise("p").out
    write(project / "p" / "k.cu", "#include <torch/extension.h>\n" + KERNEL % "")
    assert code("p") == "source-extension"


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (RADEON, "model-native-first"),
        ("radeon-vii-gfx906", "model-native-only"),
        ("rx-580-gfx803", "model-vulkan"),
        ("laptop-without-gpu-or-docker", "model-without-card"),
        ("nvidia-only", "nvidia-only"),
    ],
)
def test_a_model_of_the_catalogue(machine: str, expected: str) -> None:
    assert code("qwen2.5-coder-7b", host=machine) == expected


def test_a_model_is_weighed_against_the_card() -> None:
    told = advise("qwen2.5-coder-7b").out
    assert "native: it fits: a context of 32768 tokens" in told
    assert "zluda-stack up --profile native --model qwen2.5-coder-7b" in told
    assert code("llama-3.3-70b", host="rx-5500m-gfx1012") == "model-too-large"
    assert code("codellama-34b", host="rx-7800-xt-gfx1101") == "model-in-part"


def test_a_file_of_a_model(project: Path) -> None:
    path = write_shape(project / "my model.gguf", SHAPES["qwen2"])
    told = advise(str(path)).out
    assert f"--model '{path}'" in told
    bad = advise(str(write(project / "bad.gguf", "no")))
    assert (bad.code, "whole GGUF file" in bad.err) == (ExitCode.HOST, True)


def test_a_package_by_its_name() -> None:
    assert code("torch") == "python-rocm"
    assert code("tensorrt") == "python-lacking"
    assert "zluda-stack check tensorrt\n" in advise("tensorrt", "--gpu", "gfx1100").out


@pytest.mark.parametrize("asked", ["torch==2.9", "torch[opt] >= 2.9, < 3", "torch; os_name=='x'"])
def test_a_package_by_a_requirement_of_pip(asked: str) -> None:
    assert code(asked) == "python-rocm"


def test_no_card_is_spoken_of_as_this_card() -> None:
    told = advise("tensorrt-llm", host="laptop-without-gpu-or-docker").out
    assert told.startswith("Nothing that it asks for has a ROCm build.")
    named = advise("tensorrt-llm", "--gpu", "mi210").out
    assert named.startswith("Nothing that it asks for has a ROCm build for Instinct MI210 (gfx90a)")


def test_what_could_not_be_read_is_not_said_to_be_free_of_cuda(project: Path) -> None:
    os.truncate(write(project / "huge.cu", "x"), 5 << 20)
    (project / "binary.cu").write_bytes(b"\x7fELF\0\0\x01")
    assert code("huge.cu") == code("binary.cu") == "source-unread"


@needs_compiler
def test_a_wheel_of_a_package_that_is_there_for_rocm(project: Path) -> None:
    plain = library(project / "lib.so", container(module()))
    for name in ("bitsandbytes-0.50.2", "vllm-0.20.0", "other-1.0"):
        with zipfile.ZipFile(project / f"{name}-py3-none-any.whl", "w") as wheel:
            wheel.write(plain, "pkg/lib.so")
    assert code("bitsandbytes-0.50.2-py3-none-any.whl") == "program-has-rocm-build"
    assert code("vllm-0.20.0-py3-none-any.whl") == "program-has-rocm-build"
    assert code("vllm-0.20.0-py3-none-any.whl", "--gpu", "gfx1030") == "program-likely"
    assert code("other-1.0-py3-none-any.whl") == "program-likely"


def test_what_is_nothing_is_told_with_the_nearest_model() -> None:
    wrong = advise("qwen2.5-coder-7")
    assert wrong.code == ExitCode.USAGE
    assert "Did you mean qwen2.5-coder-7b?" in wrong.err
    assert advise("").code == ExitCode.USAGE
    assert advise("./missing").code == ExitCode.USAGE
    nameless = advise("image:")
    assert (nameless.code, "names no image" in nameless.err) == (ExitCode.USAGE, True)


def test_every_way_has_reason_evidence_source_and_date() -> None:
    for machine in (RADEON, "eight-mi300x-gfx942", "laptop-without-gpu-or-docker"):
        ways: list[Any] = advise("--json", host=machine).json["advice"]["ways"]
        for way in ways:
            assert way["why"]
            assert way["evidence"]
            assert way["provenance"]["source"]
            assert way["provenance"]["date"]


def test_names_do_not_steer_the_terminal(project: Path) -> None:
    write(project / "src" / "a\x1b[31m.cu", KERNEL % 'asm("trap;");')
    assert "\x1b" not in advise("src").out


def test_what_is_too_large_to_be_a_source_is_counted(project: Path) -> None:
    write(project / "src" / "a.cu", KERNEL % "")
    os.truncate(write(project / "src" / "b.cu", "x"), 5 << 20)
    assert "1 file could not be read, had more than 4 MiB, or no text" in advise("src").out


def test_a_card_of_this_machine_has_a_number() -> None:
    cards = {str(number): advise("--gpu", str(number), host=TWO_CARDS).out for number in (0, 1)}
    assert "gfx1100" in cards["0"] + cards["1"]
    assert "gfx1036" in cards["0"] + cards["1"]
    assert cards["0"] != cards["1"]


def test_a_card_that_no_driver_has_is_here_and_the_doctor_is_named() -> None:
    told = advise(host="amdgpu-blacklisted").out
    assert told.startswith("An AMD card is here, and it cannot be reached")
    assert "RX 7900 XTX] at 0000:03:00.0: no kernel driver is bound to it" in told
    assert "1. first the card" in told
    assert "   $ zluda-stack doctor\n" in told
    assert "no AMD card" not in told.lower()
    plain = advise(host="laptop-without-gpu-or-docker").out
    assert (plain.startswith("No AMD card is here."), "doctor" in plain) == (True, False)


@needs_compiler
def test_a_program_is_told_too_that_the_card_is_out_of_reach(project: Path) -> None:
    good = str(library(project / "libgood.so", container(module())))
    told = advise(good, host="amdgpu-blacklisted").out
    assert "the AMD card of this machine is out of reach" in told
    assert "   $ zluda-stack doctor\n" in told
    hidden = advise(good, host="kfd-without-dri").out
    assert "first: gfx1100 at 0000:86:00.0 cannot be used: /dev/kfd is there" in hidden
    assert "First: `zluda-stack doctor`" in hidden


def test_a_card_is_called_what_it_was_asked_for_by() -> None:
    assert advise("--gpu", "rx 580").out.startswith("RX 580 (gfx803): ")
    assert advise("--gpu", "gfx803").out.startswith("gfx803 (RX 460, RX 470): ")


def test_the_speed_through_zluda_is_no_reason_where_zluda_is_no_way() -> None:
    for words in ((), ("qwen2.5-coder-7b",), ("--task", "train"), ("torch",)):
        assert "ZLUDA had" not in advise(*words, "--gpu", "gfx90a").out
        assert "through ZLUDA" not in advise(*words, "--gpu", "gfx90a").out
    assert "through ZLUDA had" in advise("qwen2.5-coder-7b").out


def test_the_command_is_for_the_card_that_was_named() -> None:
    told = advise("qwen2.5-coder-7b", "--gpu", "1", host="two-rx-7900-xtx").out
    assert "zluda-stack up --profile native --gpu 1 --model qwen2.5-coder-7b" in told


@pytest.mark.parametrize("wish", ["1", "0000:99:00.0", "gfx90a"])
def test_a_card_of_the_settings_that_is_not_here_is_no_end_of_advice(
    wish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZLUDA_STACK_GPU", wish)
    told = advise("--task", "serve")
    assert told.code == ExitCode.OK, told.err
    assert "$ zluda-stack up --profile native\n     first: " in told.out
