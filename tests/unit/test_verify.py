"""What `verify` calls proven, what not, and what it never lets pass: the CPU in a GPU's place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs

from tests.unit.command_line import CASES, NO_GPU, run
from zluda_stack.errors import ExitCode
from zluda_stack.verify.first_completion import Completion, Computing, read_log
from zluda_stack.verify.programs import Program, device, read, without_summary
from zluda_stack.verify.proof import Proof, StackProof, does_not_prove, faults, proves

CARD = "AMD Radeon RX 7900 XTX [ZLUDA]"
# As llama.cpp b11434 wrote it on an NVIDIA H200 (docs/evidence/2026-11-30-cuda-native.md).
LOG = """\
ggml_cuda_init: found 1 CUDA devices (Total VRAM: 143155 MiB):
  Device 0: NVIDIA H200, compute capability 9.0, VMM: no, VRAM: 143155 MiB
load_backend: loaded CUDA backend from .../libggml-cuda.so
load_tensors: offloaded 13/13 layers to GPU
"""
RIGHT = Completion(text="Paris.", right=True, tokens=2, tokens_per_second=31.25)


def program(test: str = "vector_add", *, ok: bool = True, where: str | None = CARD) -> Program:
    """What one self-test program says."""
    return Program(
        test=test, ok=ok, detail="1048579 sums" if ok else "sum 7 is wrong", device=where
    )


def stack(**changes: object) -> StackProof:
    """A stack that computes on the card, but for the changes."""
    servers = {"inference": Computing(device=CARD, layers=31, of_layers=31)}
    right = StackProof(name="default", model="smollm2-135m", servers=servers, completion=RIGHT)
    return structs.replace(right, **changes)


def proof(*programs: Program, **changes: object) -> Proof:
    """The proof of these programs, on a card through ZLUDA."""
    return structs.replace(Proof(way="zluda", programs=programs or (program(),)), **changes)


def test_the_lines_of_the_programs_are_read_and_others_are_not() -> None:
    line = '{"test": "streams", "ok": true, "detail": "32 kernels", "device": "NVIDIA H200"}'
    assert read(line) == Program(test="streams", ok=True, detail="32 kernels", device="NVIDIA H200")
    summary = read('{"test": "selftest", "ok": true, "detail": "1 of 1 passed", "device": null}')
    assert summary is not None
    assert without_summary([program(), summary]) == (program(),)
    assert read("cuda-devices: 1") is None
    assert read("[1]") is None


def test_one_device_is_named_only_when_all_computed_on_it() -> None:
    assert device((program(), program("streams"))) == CARD
    assert device((program(), program("streams", where="another"))) is None
    assert device((program(ok=False),)) is None


def test_the_log_says_device_and_layers_of_the_last_start() -> None:
    found = read_log(LOG.splitlines())
    assert found == Computing(device="NVIDIA H200", layers=13, of_layers=13)
    assert found.on_gpu
    later = [*LOG.splitlines(), "  Device 0: Other, compute capability 8.5, VMM: no"]
    assert read_log(later) == Computing(device="Other")
    assert not read_log(later).on_gpu
    assert not read_log(["load_tensors: offloaded 0/13 layers to GPU"]).on_gpu


def test_all_right_is_told_with_device_layers_and_speed() -> None:
    found = proof(stack=stack())
    assert faults(found) == []
    told = " ".join(proves(found))
    assert CARD in told
    assert "through ZLUDA" in told
    assert "31 of 31 layers" in told
    assert "31.2 tokens a second" in told


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (proof(program(ok=False)), "vector_add: sum 7 is wrong"),
        (proof(program(where=None)), "do not name one device"),
        (structs.replace(proof(), programs=()), "no self-test program told a result"),
        (proof(stack=stack(on_cpu=True)), "computes on the CPU"),
        (proof(stack=stack(servers={"inference": Computing()})), "computes on the CPU, or its log"),
        (
            proof(
                stack=stack(servers={"inference": Computing(device=CARD, layers=0, of_layers=9)})
            ),
            "computes on the CPU",
        ),
        (
            proof(stack=stack(completion=Completion(text="Rome", right=False, detail="Rome"))),
            "the completion is not right",
        ),
        (proof(way="native-cuda"), "is no GPU of NVIDIA's"),
    ],
)
def test_what_is_not_computed_by_the_gpu_or_not_right_is_a_fault(found: Proof, told: str) -> None:
    assert told in " ".join(faults(found))
    assert not any("stack default answered" in sentence for sentence in proves(found))


def test_what_must_not_be_concluded_is_said() -> None:
    native = proof(program(where="NVIDIA H200"), way="native-cuda")
    assert faults(native) == []
    assert "Nothing here says anything of ZLUDA" in " ".join(does_not_prove(native))
    assert "no stack was running" in " ".join(does_not_prove(proof()))
    assert "load or quality" in " ".join(does_not_prove(proof(stack=stack())))


def programs_in(folder: Path, script: str) -> Path:
    """A folder with a fake script `selftest`."""
    (folder / "selftest").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "selftest").chmod(0o755)
    return folder


def test_programs_on_this_machine_prove_native_cuda(tmp_path: Path) -> None:
    line = '{"test": "vector_add", "ok": true, "detail": "sums", "device": "NVIDIA H200"}'
    folder = programs_in(tmp_path, f"echo '{line}'")
    told = run("verify", "--native-cuda", "--programs", str(folder))
    assert told.code == 0, told.err
    assert "proven: 1 of 1 CUDA programs computed on NVIDIA H200 natively" in told.out
    assert "not proven: Nothing here says anything of ZLUDA" in told.out
    facts = run("verify", "--native-cuda", "--programs", str(folder), "--json").json
    assert (facts["ok"], facts["device"], facts["faults"]) == (True, "NVIDIA H200", [])


def test_a_wrong_result_ends_with_a_fault_in_both_forms(tmp_path: Path) -> None:
    line = '{"test": "sgemm", "ok": false, "detail": "element 5", "device": "NVIDIA H200"}'
    folder = programs_in(tmp_path, f"echo '{line}'; exit 1")
    told = run("verify", "--native-cuda", "--programs", str(folder))
    assert told.code == 5
    assert "error: sgemm: element 5" in told.err
    told = run("verify", "--native-cuda", "--programs", str(folder), "--json")
    assert (told.code, json.loads(told.out)["ok"]) == (5, False)


def test_no_device_is_the_hosts_lack(tmp_path: Path) -> None:
    line = '{"test": "vector_add", "ok": false, "detail": "no CUDA device: none", "device": null}'
    folder = programs_in(tmp_path, f"echo '{line}'; exit 2")
    told = run("verify", "--native-cuda", "--programs", str(folder))
    assert told.code == 4
    assert "there is no device" in told.err


def test_without_a_gpu_nothing_is_verified() -> None:
    told = run("--host-facts", str(NO_GPU), "verify")
    assert told.code == 4
    assert "on a GPU only" in told.err


def test_the_dry_run_shows_the_container() -> None:
    facts = ("--host-facts", str(CASES / "radeon-rx-7900-xtx.json"))
    told = run(*facts, "verify", "--dry-run")
    assert told.out.endswith("zluda-stack/inference:gfx1100 /opt/selftest/selftest\n")


def test_the_native_profile_is_verified_by_hip_programs_in_its_own_image() -> None:
    facts = ("--host-facts", str(CASES / "radeon-rx-7900-xtx.json"))
    told = run(*facts, "verify", "--profile", "native", "--dry-run")
    assert told.out.endswith("zluda-stack/native:gfx1100 /opt/selftest/selftest\n")
    shown = proof(program(where="AMD Instinct MI210"), way="rocm")
    assert proves(shown)[0].startswith(
        "1 of 1 HIP programs computed on AMD Instinct MI210 natively, by ROCm"
    )
    assert "Nothing here says anything of ZLUDA." in does_not_prove(shown)


def test_a_profile_whose_image_has_no_programs_is_not_verified_by_those_of_another() -> None:
    facts = ("--host-facts", str(CASES / "radeon-rx-7900-xtx.json"))
    told = run(*facts, "verify", "--profile", "webui")
    assert told.code == ExitCode.USAGE
    assert "holds no self-test programs" in told.err
    assert "verify --profile native" in told.err
