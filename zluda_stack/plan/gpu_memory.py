"""What of a card's memory a model can have."""

from __future__ import annotations

from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.gpu_card import Card


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


def _before_start(facts: HostFacts, card: Card, stack: str) -> int | None:
    running = (one for one in facts.running if one.name == stack)
    known = (one.free_bytes.get(card.facts.pci or "") for one in running)
    return next((size for size in known if size is not None), None)
