"""What `verify` found, and what that proves and does not."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from zluda_stack.verify.first_completion import Completion, Computing
from zluda_stack.verify.programs import Program, device

Way = Literal["zluda", "rocm", "native-cuda"]
_WAYS = {
    "zluda": "through ZLUDA",
    "rocm": "natively, by ROCm",
    "native-cuda": "natively, by NVIDIA's own driver",
}
_OTHER_PARTS = "Other programs use other parts of CUDA: `zluda-stack check` looks at one."
_LIMITS: dict[Way, tuple[str, ...]] = {
    "zluda": (_OTHER_PARTS,),
    "rocm": ("Other programs use other parts of ROCm.", "Nothing here says anything of ZLUDA."),
    "native-cuda": (_OTHER_PARTS, "Nothing here says anything of ZLUDA or of an AMD GPU."),
}


class StackProof(Struct, frozen=True, kw_only=True):
    """A running stack: where its model servers compute, and a completion of it.

    `on_cpu` is True when it computes on the CPU by its plan.
    """

    name: str
    model: str
    servers: dict[str, Computing]
    completion: Completion
    on_cpu: bool = False

    @property
    def ok(self) -> bool:
        """True when every server computes on a GPU and the answer is right."""
        on_gpu = bool(self.servers) and all(one.on_gpu for one in self.servers.values())
        return on_gpu and not self.on_cpu and self.completion.right


class Proof(Struct, frozen=True, kw_only=True):
    """All that was found. `stack` is None when none was running, or none was to be asked."""

    way: Way
    programs: tuple[Program, ...]
    stack: StackProof | None = None

    @property
    def device(self) -> str | None:
        """The card that the programs computed on."""
        return device(self.programs)


def faults(proof: Proof) -> list[str]:
    """What is wrong, one line each; none when everything asked for was computed, and right."""
    found = [f"{one.test}: {one.detail}" for one in proof.programs if not one.ok]
    if not proof.programs:
        found.append("no self-test program told a result")
    elif not found and proof.device is None:
        found.append("the programs do not name one device that they computed on")
    if proof.way == "native-cuda" and proof.device and not proof.device.startswith("NVIDIA"):
        found.append(f"{proof.device} is no GPU of NVIDIA's, so this was not native CUDA")
    if proof.stack is not None:
        found += _stack_faults(proof.stack)
    return found


def _stack_faults(stack: StackProof) -> list[str]:
    if stack.on_cpu:
        return [f"the stack {stack.name} computes on the CPU"]
    found = [
        f"{name} computes on the CPU, or its log does not say where: {_where(one)}"
        for name, one in stack.servers.items()
        if not one.on_gpu
    ]
    if not stack.completion.right:
        found.append(f"the completion is not right: {stack.completion.detail}")
    return found


def proves(proof: Proof) -> list[str]:
    """What was shown, one sentence each."""
    told = []
    passed = [one.test for one in proof.programs if one.ok]
    if passed and proof.device:
        kind = "HIP" if proof.way == "rocm" else "CUDA"
        told.append(
            f"{len(passed)} of {len(proof.programs)} {kind} programs computed on {proof.device} "
            f"{_WAYS[proof.way]}, and their results equal the CPU's: {', '.join(passed)}."
        )
    stack = proof.stack
    if stack is not None and stack.ok:
        where = "; ".join(f"{name}: {_where(one)}" for name, one in stack.servers.items())
        rate = stack.completion.tokens_per_second
        speed = "" if rate is None else f", {rate:.1f} tokens a second"
        told.append(
            f"The stack {stack.name} answered a question of known answer right with "
            f"{stack.model} ({where}{speed})."
        )
    return told


def does_not_prove(proof: Proof) -> list[str]:
    """What must not be concluded, one sentence each."""
    told = list(_LIMITS[proof.way])
    if proof.stack is None:
        told.append("No model was asked: no stack was running.")
    elif not proof.stack.on_cpu:
        told.append(
            "One right answer says that the path works, and nothing of long prompts, load or "
            "quality; its tokens a second are of one short answer."
        )
    return told


def _where(one: Computing) -> str:
    layers = "layers unknown" if one.layers is None else f"{one.layers} of {one.of_layers} layers"
    return f"{one.device or 'no device'}, {layers} on it"
