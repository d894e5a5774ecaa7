"""The card of this host that somebody means by a number, an address, an id or a name."""

from __future__ import annotations

from msgspec import Struct

from zluda_stack.catalog.nearest import find_gpu, plain, suggest_gpu
from zluda_stack.catalog.schema import Catalog, Gpu
from zluda_stack.errors import PlanRefused
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.gpu_card import Card, best_of, listed
from zluda_stack.plan.gpu_override import Override
from zluda_stack.plan.gpu_reach import CPU_WAY, WSL, WSL_WAY, is_wsl_alone
from zluda_stack.plan.gpu_target import hindrance, native_way, override_way, serves, supported
from zluda_stack.plan.gpu_wish import Wanted
from zluda_stack.settings import Profile


class Host(Struct, frozen=True, kw_only=True):
    """What there is to choose from, for the stack of the name `stack` and its `profile`.

    `override` is what the user wants the chosen to pass for.
    """

    facts: HostFacts
    catalog: Catalog
    cards: tuple[Card, ...]
    override: Override | None
    stack: str
    profile: Profile


def find(host: Host, wanted: Wanted) -> Card | Gpu:
    """The card that is meant, or the target that is meant when no card of it is here.

    Raises PlanRefused for what names no card or several, and for a target that cannot be served.
    """
    if wanted.kind == "name":
        return _by_name(host, wanted.text)
    meant = [card for card in host.cards if wanted.means(card)]
    if not meant:
        raise PlanRefused(f"no GPU here has the {wanted.kind} {wanted.text}", what_is_here(host))
    if len(meant) > 1:
        raise PlanRefused(
            f"{wanted.text} is the {wanted.kind} of several GPUs",
            f"Name one by its number. Here: {listed(meant)}.",
        )
    return meant[0]


def _by_name(host: Host, name: str) -> Card | Gpu:
    """A name is a card's own before it is a product or a target of the catalogue.

    Only so can two products of one target be told apart.
    """
    own = [card for card in host.cards if _is_called(card, name)]
    if own:
        return best_of(own)
    target = _served_target(host, name)
    cards = [card for card in host.cards if card.facts.gfx_target == target.target]
    return best_of(cards) if cards else target


def _is_called(card: Card, name: str) -> bool:
    """True when the card's name is this one, or lists it: "RX 7900 XT/7900 XTX" is in pci.ids."""
    whole = card.facts.name or ""
    own = {plain(part) for part in (whole, *whole.split("/"))}
    return plain(name) in own - {""}


def _served_target(host: Host, name: str) -> Gpu:
    """The catalogue's GPU for a gfx target or a product's whole name, such as "rx 7900 xtx".

    Raises PlanRefused with the nearest names, or with what is left for one that is not served.
    """
    gpu = find_gpu(host.catalog, name)
    if gpu is None:
        near = suggest_gpu(host.catalog, name)
        names = "; ".join(f"{one.target} ({', '.join(one.products[:2])})" for one in near)
        hint = f"Nearest: {names}. " if names else ""
        there = f"Here: {listed(host.cards)}. " if host.cards else ""
        raise PlanRefused(
            f"{name!r} is no known gfx target or card",
            hint + there + supported(host.catalog, host.profile),
        )
    problem = hindrance(gpu, overridden=host.override is not None, profile=host.profile)
    if problem is not None:
        raise PlanRefused(problem, ways_on(host, gpu))
    return gpu


def here(host: Host) -> str:
    """What this machine has, as the end of a sentence."""
    wsl = f"; {WSL}" if is_wsl_alone(host.facts) else ""
    return f"this machine has {', '.join(card.label for card in host.cards) or 'no AMD GPU'}{wsl}"


def what_is_here(host: Host) -> str:
    """The hint for a card that is not here: which ones are, and the way on."""
    if is_wsl_alone(host.facts):
        return WSL_WAY
    return f"Here: {listed(host.cards)}. `zluda-stack gpus` shows more. {CPU_WAY}"


def ways_on(host: Host, gpu: Gpu | None) -> str:
    """The hint for a target that is not served, or not even known: what is left for it."""
    if gpu is None:
        return supported(host.catalog, host.profile)
    if serves(host.profile, gpu):
        return f"{override_way(gpu, host.catalog)} {CPU_WAY}"
    return f"{native_way(gpu)} {supported(host.catalog, host.profile)}"
