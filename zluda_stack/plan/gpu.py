"""Which devices compute: the GPUs that were asked for or are there, or the CPU, said openly."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from zluda_stack.catalog.schema import Catalog, Gpu
from zluda_stack.errors import PlanRefused
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.gpu_card import Card, best_of, cards_of, listed, why_not
from zluda_stack.plan.gpu_find import Host, find, here, ways_on, what_is_here
from zluda_stack.plan.gpu_kernels import Kernels, choose_kernels
from zluda_stack.plan.gpu_memory import free_bytes
from zluda_stack.plan.gpu_notices import target_warnings
from zluda_stack.plan.gpu_override import valid_override
from zluda_stack.plan.gpu_reach import (
    CPU_WAY,
    outside_kfd,
    refuse_hidden,
    refuse_unreachable,
    why_no_gpu,
    wsl_notice,
)
from zluda_stack.plan.gpu_target import native_way, serves
from zluda_stack.plan.gpu_wish import Wanted, Wish, read_wish
from zluda_stack.plan.profiles import traits
from zluda_stack.plan.types import GpuDevice, Notice, SkippedGpu
from zluda_stack.settings import Configured


class Choice(Struct, frozen=True, kw_only=True):
    """The chosen GPUs (none: the CPU), why, what was passed over, and what this host lacks."""

    gpus: tuple[GpuDevice, ...]
    because: str
    skipped: tuple[SkippedGpu, ...] = ()
    warnings: tuple[Notice, ...] = ()
    unmet: tuple[Notice, ...] = ()

    @property
    def gpu(self) -> GpuDevice | None:
        """The first of them; all are of its gfx target."""
        return self.gpus[0] if self.gpus else None


def choose_gpu(facts: HostFacts, configured: Configured, catalog: Catalog) -> Choice:
    """The devices for these settings on this host.

    Raises PlanRefused for a card that is unknown, not here or that cannot be served, for cards
    of several targets, for a GPU that contradicts the embedded engine, for a card that is there
    but cannot be reached, and for an override of the wrong form or to a target without kernels.
    """
    wish = read_wish(configured.settings.gpu)
    host = Host(
        facts=facts,
        catalog=catalog,
        cards=cards_of(facts, configured, catalog),
        override=valid_override(facts, configured),
        stack=configured.settings.name,
        profile=configured.settings.profile,
    )
    if configured.settings.engine == "embedded":
        return _embedded(host, wish, configured)
    if wish.way == "none":
        return _on_cpu(host, "no GPU was asked for (gpu is none)")
    if wish.way == "auto":
        return _automatic(host)
    return _every(host) if wish.way == "all" else _named(host, wish.named)


def _embedded(host: Host, wish: Wish, configured: Configured) -> Choice:
    if wish.way not in ("auto", "none"):
        given = f"{configured.settings.gpu.strip()} ({configured.origin('gpu')})"
        raise PlanRefused(
            f"the embedded engine runs on the CPU, but gpu is {given}",
            "Leave --engine out to use the GPU, or leave --gpu out to use the CPU.",
        )
    return _on_cpu(host, "the embedded engine was asked for")


def _on_cpu(host: Host, because: str) -> Choice:
    skipped = tuple(_skip(card, because) for card in host.cards)
    return Choice(gpus=(), because=because, skipped=skipped)


def _automatic(host: Host) -> Choice:
    usable = [card for card in host.cards if card.trouble is None]
    if usable:
        best = best_of(usable)
        return _taken(host, (best,), {card.index: why_not(card, best) for card in usable})
    refuse_hidden(host.facts)
    skipped = _skipped(host, (), {})
    because = why_no_gpu(host.facts, skipped)
    warnings = (*wsl_notice(host.facts), *_other_profile(host))
    return Choice(gpus=(), because=because, skipped=skipped, warnings=warnings)


def _other_profile(host: Host) -> tuple[Notice, ...]:
    """That a card of this host, which is not used, has a way without translation."""
    if not traits(host.profile).translates:
        return ()
    for card in host.cards:
        known = card.known
        if known is not None and not serves(host.profile, known) and serves("native", known):
            message = f"{card.label} is not used, since ZLUDA cannot serve it"
            return (Notice(code="native-profile", message=message, hint=native_way(known)),)
    return ()


def _every(host: Host) -> Choice:
    """Every card that serves; integrated graphics only where there is nothing else."""
    usable = [card for card in host.cards if card.trouble is None]
    if not usable:
        refuse_hidden(host.facts)
        raise PlanRefused(
            f"gpu is all, but there is no GPU that can be used: {here(host)}", what_is_here(host)
        )
    best = best_of(usable)
    chosen = [
        card
        for card in usable
        if card.integrated == best.integrated and card.facts.render_node is not None
    ]
    reasons = {card.index: why_not(card, best) for card in usable}
    return _taken(host, chosen or (best,), reasons)


def _named(host: Host, named: tuple[Wanted, ...]) -> Choice:
    chosen: list[Card] = []
    for wanted in named:
        found = find(host, wanted)
        if isinstance(found, Gpu):
            if len(named) == 1:
                return _elsewhere(host, found)
            raise PlanRefused(
                f"{wanted.text} is not here: {here(host)}",
                "Name several cards only on the machine that has them all.",
            )
        if found in chosen:
            raise PlanRefused(
                f"{wanted.text} names {found.label}, which was named before",
                f"Name each card once, by its number. Here: {listed(host.cards)}.",
            )
        if found.trouble is not None:
            message = f"{found.label} cannot be used: {found.trouble}"
            raise PlanRefused(message, ways_on(host, found.known))
        chosen.append(found)
    return _taken(host, chosen, _other_than(host, named, chosen[0]))


def _other_than(host: Host, named: tuple[Wanted, ...], first: Card) -> dict[int, str]:
    """Why the cards that were not named are passed over; a name may mean several of them."""
    asked = " and ".join(wanted.text for wanted in named)
    reason = f"{asked} {'was' if len(named) == 1 else 'were'} asked for"
    by_name = any(wanted.kind == "name" for wanted in named)
    return {
        card.index: why_not(card, first) if by_name and card.known == first.known else reason
        for card in host.cards
    }


def _elsewhere(host: Host, target: Gpu) -> Choice:
    """A plan that can be rendered and built here, for a card of another machine."""
    lacks = Notice(
        code="gpu-not-here",
        message=f"{target.target} was asked for, but {here(host)}",
        hint=f"Render or build here, and run where the card is. {CPU_WAY}",
    )
    kernels = choose_kernels(host.catalog, target, host.override, host.profile)
    return Choice(
        gpus=(_device(host, target, kernels, None),),
        because=f"{target.target} was asked for",
        skipped=_skipped(host, (), {c.index: f"{target.target} was asked for" for c in host.cards}),
        warnings=target_warnings(host.facts, target, host.override),
        unmet=(*wsl_notice(host.facts), lacks),
    )


def _taken(host: Host, chosen: Iterable[Card], reasons: dict[int, str]) -> Choice:
    """The choice of cards that are here; `reasons` are those of the others, by their number."""
    cards = tuple(chosen)
    for card in cards:
        refuse_unreachable(host.facts, card)
    target = _one_target(cards)
    kernels = choose_kernels(host.catalog, target, host.override, host.profile)
    known = traits(host.profile)
    because = f"{cards[0].label} is here and {known.subject} {known.verb} it"
    if len(cards) > 1:
        because = f"{len(cards)} such cards are here, and each gets a model server of its own"
    return Choice(
        gpus=tuple(_device(host, target, kernels, card) for card in cards),
        because=because,
        skipped=_skipped(host, cards, reasons),
        warnings=target_warnings(host.facts, target, host.override),
    )


def _one_target(cards: tuple[Card, ...]) -> Gpu:
    """The gfx target of all `cards`, which the profile serves. Raises PlanRefused for several."""
    targets = {card.known.target: card.known for card in cards if card.known is not None}
    if len(targets) == 1:
        return next(iter(targets.values()))
    first, second, *_ = (
        ",".join(str(card.index) for card in cards if card.facts.gfx_target == target)
        for target in targets
    )
    raise PlanRefused(
        f"{listed(cards)}: these are of the targets {' and '.join(targets)}, and one inference "
        "image holds the kernels of one target only",
        f"Take those of one target (--gpu {first}), and start a second stack for the others "
        f"(`zluda-stack up --name second --gpu {second}`).",
    )


def _skipped(
    host: Host, chosen: tuple[Card, ...], reasons: dict[int, str]
) -> tuple[SkippedGpu, ...]:
    """Every other card with its reason; that it cannot be served comes before all others."""
    others = (card for card in host.cards if card not in chosen)
    listed_here = tuple(_skip(card, card.trouble or reasons[card.index]) for card in others)
    return listed_here + tuple(outside_kfd(host.facts))


def _skip(card: Card, reason: str) -> SkippedGpu:
    return SkippedGpu(gpu=card.label, reason=reason, index=card.index)


def _device(host: Host, target: Gpu, kernels: Kernels, card: Card | None) -> GpuDevice:
    facts = host.facts
    render_node = card.facts.render_node if card else None
    gids = {node.path: node.gid for node in facts.render_nodes}
    return GpuDevice(
        target=target.target,
        name=card.facts.name if card else None,
        evidence=target.provenance.evidence,
        index=card.index if card else None,
        integrated=card.integrated if card else target.integrated,
        pci=card.facts.pci if card else None,
        render_node=render_node,
        render_gid=gids.get(render_node) if render_node else None,
        kfd_gid=facts.kfd.gid if card and facts.kfd else None,
        memory_bytes=card.memory_bytes if card else None,
        free_bytes=free_bytes(facts, card, host.stack) if card else None,
        hsa_override=kernels.hsa_override,
        kernel_target=kernels.target,
    )


def describe(gpus: tuple[GpuDevice, ...]) -> str:
    """The chosen GPUs in a few words, for a headline."""
    words = (gpu.name or gpu.target for gpu in gpus)
    places = (f" at {gpu.pci}" if gpu.pci else "" for gpu in gpus)
    return " and ".join(word + place for word, place in zip(words, places, strict=True))
