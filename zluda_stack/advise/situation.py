"""The card that advice is for: the best of this machine, or the one that was named. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from zluda_stack.advise.question import Situation
from zluda_stack.catalog.nearest import find_gpu, suggest_gpu
from zluda_stack.catalog.schema import Catalog, Gpu
from zluda_stack.errors import DeviceMissing, PlanRefused, UsageError
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.engine_needs import engine_for, engine_needs
from zluda_stack.plan.gpu import choose_gpu
from zluda_stack.plan.gpu_card import Card, best_of, cards_of
from zluda_stack.plan.gpu_reach import WSL, for_no_server, is_wsl_alone, outside_kfd
from zluda_stack.plan.gpu_target import hindrance
from zluda_stack.plan.gpu_wish import read_wish
from zluda_stack.plan.toolbox import NO_CARD, reach
from zluda_stack.plan.types import EngineName, Notice
from zluda_stack.settings import Configured

_NVIDIA = 0x10DE


def situation(
    facts: HostFacts, configured: Configured, catalog: Catalog, named: str | None
) -> Situation:
    """What there is to compute with on this host, or by the card that `named` means.

    Raises UsageError for a card that the catalogue does not know, PlanRefused for no name of one.
    """
    nvidia = any(display.vendor == _NVIDIA for display in facts.pci_displays)
    cards = cards_of(facts, configured, catalog)
    found = _best(cards) if named is None else _named(catalog, cards, named)
    containers = _lack(facts, "docker", catalog)
    return structs.replace(
        _with_trouble(found, facts, configured, catalog) if named is None else found,
        nvidia="yes" if nvidia and named is None else "no",
        notes=tuple(_notes(facts, cards, found)) if named is None else (),
        containers=containers,
        on_card=containers or (_outside(facts, configured, catalog) if named is None else None),
        cpu=_lack(facts, engine_for(configured.settings, on_card=False), catalog),
    )


def _lack(facts: HostFacts, engine: EngineName, catalog: Catalog) -> Notice | None:
    return next(iter(for_no_server(engine_needs(facts, engine, catalog.host))), None)


def _outside(facts: HostFacts, configured: Configured, catalog: Catalog) -> Notice | None:
    """What keeps the card of this machine out of containers; nothing where there is none."""
    lack = reach(facts, configured, catalog).lack
    return None if lack is None or lack.code == NO_CARD else lack


def _named(catalog: Catalog, cards: tuple[Card, ...], name: str) -> Situation:
    """The card of the number, address or id `name`, else the best of the target or product."""
    wanted = read_wish(name).named
    meant = [card for card in cards if len(wanted) == 1 and wanted[0].means(card)]
    if meant:
        return _of_card(meant[0])
    gpu = find_gpu(catalog, name)
    if gpu is None:
        near = ", ".join(one.target for one in suggest_gpu(catalog, name))
        hint = f"Did you mean {near}? " if near else ""
        raise UsageError(
            f"no GPU named {name!r} is known", f"{hint}`zluda-stack gpus` lists yours."
        )
    here = [card for card in cards if card.facts.gfx_target == gpu.target]
    if here:
        return _of_card(best_of(here))
    return structs.replace(_of_target(gpu, overridden=False), where="named")


def _best(cards: tuple[Card, ...]) -> Situation:
    """The card that most ways serve, of these the one that a plan would take."""
    if not cards:
        return Situation(where="nowhere", zluda="none", native="none")
    served = {card.index: _ways(_of_card(card)) for card in cards}
    most = max(served.values())
    return _of_card(best_of(card for card in cards if served[card.index] == most))


def _ways(found: Situation) -> int:
    return (found.zluda == "yes") + (found.native == "rocm")


def _of_card(card: Card) -> Situation:
    memory = card.memory_bytes
    used = 0 if card.integrated else card.facts.vram_used_bytes or 0
    known: Situation
    if card.known is None:
        known = Situation(where="here", zluda="no", native="vulkan", target="")
    else:
        known = _of_target(card.known, overridden=card.overridden)
    return structs.replace(
        known,
        where="here",
        card=card.label,
        free=None if memory is None else max(0, memory - used),
    )


def _of_target(gpu: Gpu, *, overridden: bool) -> Situation:
    translated = hindrance(gpu, overridden=overridden, profile="translated")
    native = hindrance(gpu, overridden=overridden, profile="native")
    return Situation(
        where="named",
        zluda="yes" if translated is None else "no",
        native="rocm" if native is None else "vulkan",
        target=gpu.target,
        card=f"{gpu.target} ({', '.join(gpu.products[:2])})",
    )


def _with_trouble(
    found: Situation, facts: HostFacts, configured: Configured, catalog: Catalog
) -> Situation:
    """`found` with what keeps the card of this machine out of reach."""
    try:
        choose_gpu(facts, configured, catalog)
    except DeviceMissing as problem:
        return structs.replace(found, trouble="yes", problem=problem.message)
    except PlanRefused:
        return found
    return found


def _notes(facts: HostFacts, cards: tuple[Card, ...], found: Situation) -> Iterable[str]:
    if is_wsl_alone(facts):
        yield f"{WSL}: a card of Windows is not reached"
    for other in outside_kfd(facts):
        yield f"{other.gpu}: {other.reason}"
    others = len(cards) - 1
    if others > 0:
        yield f"{others} more AMD card{'s' * (others > 1)} here; this is for {found.card}"
