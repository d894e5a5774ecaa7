"""What of a card's memory a model can have."""

from __future__ import annotations

from msgspec import structs

from zluda_stack.errors import PlanRefused
from zluda_stack.host.facts import HostFacts
from zluda_stack.models.fit_report import CardMemory
from zluda_stack.plan.gpu_card import Card
from zluda_stack.plan.types import GpuDevice
from zluda_stack.units import gibibytes


def free_bytes(facts: HostFacts, card: Card, stack: str) -> int | None:
    """What nothing but the stack of this name holds of the card's memory; None: not known.

    While that stack runs its model is on the card, and how much of what is used that is nobody
    tells: it counts what was free before. Then the same wish gives the same plan, and a stack
    that runs as planned is left alone.
    """
    memory = card.memory_bytes
    if memory is None:
        return None
    before = _before_start(facts, card, stack)
    if before is not None:
        return min(memory, before)
    if card.integrated and memory != card.facts.vram_bytes:  # it is the machine's memory
        available = facts.memory_available_bytes
        return memory if available is None else min(memory, available)
    return max(0, memory - (card.facts.vram_used_bytes or 0))


def card_memory(facts: HostFacts, card: Card, stack: str) -> CardMemory | None:
    """What a model can have of a card of this machine, by `free_bytes`; None: not known."""
    memory, free = card.memory_bytes, free_bytes(facts, card, stack)
    if memory is None or free is None:
        return None
    return CardMemory(
        label=card.label,
        memory=memory,
        used=memory - free,
        machine=facts.memory_bytes,
        shared=card.integrated,
    )


def described(gpus: tuple[GpuDevice, ...], vram: int | None) -> tuple[GpuDevice, ...]:
    """`gpus` with `vram` bytes where a card's memory is not known, as that of one elsewhere.

    Raises PlanRefused when it is known: what a user says does not make a card larger.
    """
    if vram is None:
        return gpus
    for gpu in gpus:
        if gpu.memory_bytes is not None:
            raise PlanRefused(
                f"vram is {gibibytes(vram)}, but {gpu.name or gpu.target} is here and has "
                f"{gibibytes(gpu.memory_bytes)}",
                "Leave --vram out: it is for a card that is not here.",
            )
    return tuple(structs.replace(gpu, memory_bytes=vram, free_bytes=vram) for gpu in gpus)


def _before_start(facts: HostFacts, card: Card, stack: str) -> int | None:
    running = (one for one in facts.running if one.name == stack)
    known = (one.free_bytes.get(card.facts.pci or "") for one in running)
    return next((size for size in known if size is not None), None)
