"""The card that advice is for: the best of this machine, or the one that was named. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from zluda_stack.advise.question import Situation
from zluda_stack.catalog.nearest import find_gpu, plain, suggest_gpu
from zluda_stack.catalog.schema import Catalog, Gpu
from zluda_stack.errors import DeviceMissing, HostProblem, PlanRefused, UsageError
from zluda_stack.host.facts import HostFacts
from zluda_stack.models.fit_report import CardMemory
from zluda_stack.plan.engine_needs import engine_for, engine_needs
from zluda_stack.plan.gpu import choose_gpu
from zluda_stack.plan.gpu_card import Card, best_of, cards_of
from zluda_stack.plan.gpu_memory import card_memory
from zluda_stack.plan.gpu_reach import WSL, for_no_server, is_wsl_alone, outside_kfd
from zluda_stack.plan.gpu_target import hindrance
from zluda_stack.plan.gpu_wish import read_wish
from zluda_stack.plan.model_on_cpu import memory_of
from zluda_stack.plan.toolbox import NO_CARD, reach
from zluda_stack.plan.types import EngineName, Notice
from zluda_stack.settings import Configured, Profile

_NVIDIA = 0x10DE
_PROFILES: tuple[Profile, ...] = ("native", "translated")
_NOWHERE = Situation(where="nowhere", zluda="none", native="none")


def situation(
    facts: HostFacts,
    configured: Configured,
    catalog: Catalog,
    named: str | None,
    vram: int | None = None,
) -> Situation:
    """What there is to compute with on this host, or by the card that `named` means.

    `vram` is the memory in bytes of one that is not here. Raises UsageError for a card that the
    catalogue does not know and for memory of no such card, PlanRefused for no name of one.
    """
    if vram is not None and named is None:
        raise UsageError(
            "--vram is the memory of a card that is not here", "Name the card too, with --gpu."
        )
    nvidia = named is None and any(display.vendor == _NVIDIA for display in facts.pci_displays)
    found = (
        _here(facts, configured, catalog, nvidia=nvidia)
        if named is None
        else _named(facts, configured, catalog, named, vram)
    )
    containers = _lack(facts, "docker", catalog)
    outside = None if found.where == "named" else _outside(found, facts, configured, catalog)
    return structs.replace(
        found,
        nvidia="yes" if nvidia else "no",
        containers=containers,
        on_card=containers or outside,
        cpu=_lack(facts, engine_for(configured.settings, on_card=False), catalog),
        machine=memory_of(facts, configured.settings),
        default_model=catalog.defaults.model,
    )


def _lack(facts: HostFacts, engine: EngineName, catalog: Catalog) -> Notice | None:
    return next(iter(for_no_server(engine_needs(facts, engine, catalog.host))), None)


def _outside(
    found: Situation, facts: HostFacts, configured: Configured, catalog: Catalog
) -> Notice | None:
    """What keeps the card of this machine out of containers; nothing where there is none."""
    if found.trouble == "yes":
        hint = "`zluda-stack doctor` says what keeps the card out of reach."
        return Notice(code=NO_CARD, message=found.problem, hint=hint)
    try:
        lack = reach(facts, configured, catalog).lack
    except (HostProblem, PlanRefused) as error:  # a card of the settings that is not here
        return Notice(code="gpu", message=error.message, hint=error.hint)
    return None if lack is None or lack.code == NO_CARD else lack


def _here(facts: HostFacts, configured: Configured, catalog: Catalog, *, nvidia: bool) -> Situation:
    """The best card of this machine, and what keeps it out of reach."""
    cards = cards_of(facts, configured, catalog)
    found = _with_trouble(_best(facts, configured, cards), facts, configured, catalog)
    hidden = tuple(outside_kfd(facts))
    told = [f"{other.gpu}: {other.reason}" for other in hidden]
    if hidden and not cards and found.trouble == "no" and not nvidia:
        # A card that an NVIDIA one stands beside may be left to other things on purpose.
        found = structs.replace(
            found, trouble="yes", problem="; ".join(told), card=f"{hidden[0].gpu}, out of reach"
        )
        told = []
    return structs.replace(found, notes=(*_notes(facts, cards, found), *told))


def _with_trouble(
    found: Situation, facts: HostFacts, configured: Configured, catalog: Catalog
) -> Situation:
    """`found` with what keeps a card of this machine out of reach of any profile."""
    for profile in _PROFILES:
        settings = structs.replace(configured.settings, profile=profile)
        try:
            choose_gpu(facts, structs.replace(configured, settings=settings), catalog)
        except DeviceMissing as missing:
            card = "an AMD card, out of reach" if found.where == "nowhere" else found.card
            return structs.replace(found, trouble="yes", problem=missing.message, card=card)
        except PlanRefused:
            continue
    return found


def _notes(facts: HostFacts, cards: tuple[Card, ...], found: Situation) -> Iterable[str]:
    if is_wsl_alone(facts):
        yield f"{WSL}: a card of Windows is not reached"
    others = len(cards) - 1
    if others > 0:
        yield f"{others} more AMD card{'s' * (others > 1)} here; this is for {found.card}"


def _best(facts: HostFacts, configured: Configured, cards: tuple[Card, ...]) -> Situation:
    """The card that most ways serve, of these the one that a plan would take."""
    if not cards:
        return _NOWHERE
    each = {card.index: _of_card(facts, configured, card) for card in cards}
    served = {index: _count(found) for index, found in each.items()}
    most = max(served.values())
    return each[best_of(card for card in cards if served[card.index] == most).index]


def _count(found: Situation) -> int:
    return (found.zluda == "yes") + (found.native == "rocm")


def _named(
    facts: HostFacts, configured: Configured, catalog: Catalog, name: str, vram: int | None
) -> Situation:
    """The card of the number, address or id `name`, else the best of the target or product.

    With `vram` it is one of that target or product which is not here.
    """
    cards = cards_of(facts, configured, catalog)
    wanted = read_wish(name).named
    meant = [card for card in cards if len(wanted) == 1 and wanted[0].means(card)]
    if meant and vram is not None:
        raise UsageError(
            f"{name} is {meant[0].label}, which is here, and --vram is the memory of one that is "
            "not",
            "Leave --vram out, or name a card by its gfx target or product.",
        )
    if meant:
        return _picked(facts, configured, cards, meant[0])
    gpu = find_gpu(catalog, name)
    if gpu is None:
        near = ", ".join(one.target for one in suggest_gpu(catalog, name))
        hint = f"Did you mean {near}? " if near else ""
        raise UsageError(
            f"no GPU named {name!r} is known", f"{hint}`zluda-stack gpus` lists yours."
        )
    here = [card for card in cards if card.facts.gfx_target == gpu.target]
    if here and vram is None:
        return _picked(facts, configured, cards, best_of(here))
    return _elsewhere(gpu, name, vram)


def _picked(
    facts: HostFacts, configured: Configured, cards: tuple[Card, ...], card: Card
) -> Situation:
    """A card of this machine that was named, among `cards`."""
    found = _of_card(facts, configured, card)
    return structs.replace(found, pick=str(card.index) if len(cards) > 1 else "")


def _elsewhere(gpu: Gpu, name: str, vram: int | None) -> Situation:
    """A card that is not here, by the name that it was asked for by."""
    product = next((one for one in gpu.products if plain(one) == plain(name)), None)
    label = f"{gpu.target} ({', '.join(gpu.products[:2])})"
    if product is not None:
        label = f"{product} ({gpu.target})"
    memory = None
    if vram is not None:
        memory = CardMemory(label=label, memory=vram, shared=gpu.integrated)
    return structs.replace(
        _of_target(gpu, overridden=False),
        where="named",
        card=label,
        pick=gpu.target,
        vram=vram,
        memory=memory,
    )


def _of_card(facts: HostFacts, configured: Configured, card: Card) -> Situation:
    """A card of this machine; one whose target the kernel does not tell is out of reach."""
    if card.facts.gfx_target is None:
        return structs.replace(
            _NOWHERE, trouble="yes", problem=f"{card.label}: {card.trouble}", card=card.label
        )
    known = Situation(where="here", zluda="no", native="vulkan")
    if card.known is not None:
        known = _of_target(card.known, overridden=card.overridden)
    return structs.replace(
        known,
        card=card.label,
        memory=card_memory(facts, card, configured.settings.name),
    )


def _of_target(gpu: Gpu, *, overridden: bool) -> Situation:
    translated = hindrance(gpu, overridden=overridden, profile="translated")
    native = hindrance(gpu, overridden=overridden, profile="native")
    return Situation(
        where="here",
        zluda="yes" if translated is None else "no",
        native="rocm" if native is None else "vulkan",
        target=gpu.target,
    )
