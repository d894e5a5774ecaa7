"""A GPU of this host, as its facts and the catalogue together describe it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from zluda_stack.catalog.schema import Catalog, Gpu
from zluda_stack.host.facts import GpuFacts, HostFacts
from zluda_stack.plan.gpu_override import given_override
from zluda_stack.plan.gpu_target import hindrance
from zluda_stack.settings import Configured, Profile


class Card(Struct, frozen=True, kw_only=True):
    """`index` is its number in `zluda-stack gpus`; `known` its target's entry in the catalogue.

    `overridden` is True when the user's override makes it pass for another target; `profile` is
    what it is to compute with.
    """

    index: int
    facts: GpuFacts
    known: Gpu | None
    overridden: bool
    profile: Profile = "translated"

    @property
    def label(self) -> str:
        """Its name, target and PCI address, as far as they are known."""
        gpu = self.facts
        name = gpu.name or gpu.gfx_target or "a GPU of unknown target"
        target = f" ({gpu.gfx_target})" if gpu.name and gpu.gfx_target else ""
        return f"{name}{target}" + (f" at {gpu.pci}" if gpu.pci else "")

    @property
    def integrated(self) -> bool:
        """True for graphics in the processor: as the driver says, else as its target implies."""
        if self.facts.integrated is not None:
            return self.facts.integrated
        return self.known is not None and self.known.integrated

    @property
    def memory_bytes(self) -> int | None:
        """The memory that programs can use, None when it is not known.

        An integrated GPU takes what it needs of the machine's memory, up to its GTT size; what
        the firmware set aside for it may be 512 MiB (case C08). A discrete card works in its own.
        """
        sizes = [self.facts.vram_bytes]
        if self.integrated:
            sizes.append(self.facts.gtt_bytes)
        return max((size for size in sizes if size is not None), default=None)

    @property
    def trouble(self) -> str | None:
        """Why the profile cannot serve it, None when it can."""
        if self.facts.gfx_target is None:
            return "this kernel does not tell its gfx target"
        if self.known is None:
            return f"{self.facts.gfx_target} is not in the catalogue"
        return hindrance(self.known, overridden=self.overridden, profile=self.profile)

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Discrete before integrated, then most memory, then the kernel's order."""
        return (not self.integrated, self.memory_bytes or 0, -self.index)


def cards_of(facts: HostFacts, configured: Configured, catalog: Catalog) -> tuple[Card, ...]:
    """Every GPU of the host, in the kernel's order."""
    overridden = given_override(facts, configured) is not None
    return tuple(
        Card(
            index=index,
            facts=gpu,
            known=catalog.gpus.get(gpu.gfx_target or ""),
            overridden=overridden,
            profile=configured.settings.profile,
        )
        for index, gpu in enumerate(facts.gpus)
    )


def best_of(cards: Iterable[Card]) -> Card:
    """The first by rank of those whose render node is there, or of all when none has one."""
    every = list(cards)
    reachable = [card for card in every if card.facts.render_node is not None]
    return max(reachable or every, key=lambda card: card.rank)


def why_not(card: Card, best: Card) -> str:
    """Why `best` was taken and not `card`, both of which can be served."""
    if card.facts.render_node is None:
        return "its render node under /dev/dri is missing"
    if card.integrated and not best.integrated:
        return f"integrated; the discrete {best.label} is preferred"
    if (card.memory_bytes or 0) < (best.memory_bytes or 0):
        return f"{best.label} has more memory"
    return f"{best.label} comes first in the KFD topology"


def listed(cards: Iterable[Card]) -> str:
    """The cards with their numbers, for a hint."""
    return "; ".join(f"{card.index}: {card.label}" for card in cards) or "no AMD GPU"
