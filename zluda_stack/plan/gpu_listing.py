"""The GPUs of a host as a table: what each is, who serves it, and whether the plan takes it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from zluda_stack.catalog.schema import Catalog
from zluda_stack.errors import PlanRefused
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.gpu import Choice, choose_gpu
from zluda_stack.plan.gpu_card import Card, cards_of
from zluda_stack.plan.gpu_reach import outside_kfd
from zluda_stack.plan.types import SkippedGpu
from zluda_stack.settings import Configured

_VENDORS = {0x1002: "AMD", 0x10DE: "NVIDIA", 0x8086: "Intel"}


class GpuRow(Struct, frozen=True, kw_only=True):
    """One GPU. `memory_bytes` is what programs can use; None is "not known" everywhere.

    `products` are those of its gfx target, `zluda` and `rocm` what the catalogue says of their
    support. `chosen` is None where the plan was refused; `reason` says why it is or is not.
    """

    index: int
    name: str | None
    target: str | None
    products: tuple[str, ...]
    kind: Literal["discrete", "integrated"]
    memory_bytes: int | None
    pci: str | None
    render_node: str | None
    unique_id: str | None
    zluda: str | None
    rocm: str | None
    chosen: bool | None
    reason: str


class Problem(Struct, frozen=True, kw_only=True):
    """Why no plan can be made with these cards and settings, and the next step."""

    message: str
    hint: str


class GpuListing(Struct, frozen=True, kw_only=True):
    """All GPUs of the compute driver; `others` are AMD's cards that it does not offer.

    `displays` describes every display controller on the PCI bus, of any vendor; `because` is
    what the choice rests on.
    """

    gpus: tuple[GpuRow, ...]
    others: tuple[SkippedGpu, ...]
    displays: tuple[str, ...]
    because: str
    problem: Problem | None = None


def list_gpus(facts: HostFacts, configured: Configured, catalog: Catalog) -> GpuListing:
    """The GPUs of this host; a plan that must be refused is told in `problem` and not raised."""
    choice, problem = None, None
    try:
        choice = choose_gpu(facts, configured, catalog)
    except PlanRefused as refused:
        problem = Problem(message=refused.message, hint=refused.hint)
    return GpuListing(
        gpus=tuple(_row(card, choice) for card in cards_of(facts, configured, catalog)),
        others=tuple(outside_kfd(facts)),
        displays=_displays(facts),
        because=choice.because if choice else "",
        problem=problem,
    )


def _row(card: Card, choice: Choice | None) -> GpuRow:
    chosen, reason = _outcome(card, choice)
    gpu, known = card.facts, card.known
    return GpuRow(
        index=card.index,
        name=gpu.name,
        target=gpu.gfx_target,
        products=known.products if known else (),
        kind="integrated" if card.integrated else "discrete",
        memory_bytes=card.memory_bytes,
        pci=gpu.pci,
        render_node=gpu.render_node,
        unique_id=gpu.unique_id,
        zluda=known.zluda.value if known else None,
        rocm=known.rocm_official if known else None,
        chosen=chosen,
        reason=reason,
    )


def _outcome(card: Card, choice: Choice | None) -> tuple[bool | None, str]:
    if choice is None:
        return None, card.trouble or ""
    if any(gpu.index == card.index for gpu in choice.gpus):
        return True, choice.because
    return False, next(entry.reason for entry in choice.skipped if entry.index == card.index)


def _displays(facts: HostFacts) -> tuple[str, ...]:
    return tuple(
        f"{one.name or f'{one.vendor:04x}:{one.device:04x}'} of "
        f"{_VENDORS.get(one.vendor, 'another vendor')} at {one.address} "
        f"(driver: {one.driver or 'none'})"
        for one in facts.pci_displays
    )
