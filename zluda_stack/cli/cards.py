"""The cards that a command on models looks at: those of this machine, or one described."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context
from zluda_stack.errors import HostProblem, UsageError
from zluda_stack.units import amount

if TYPE_CHECKING:
    from zluda_stack.catalog.schema import Gpu
    from zluda_stack.models.fit_report import CardMemory
    from zluda_stack.plan.gpu_card import Card
    from zluda_stack.settings import Configured

_MOST = 1 << 50
_MOST_CONTEXT = 1 << 24
_LEAST_MEMORY = 1 << 20  # whoever types a smaller number means GiB


class Amount(click.ParamType[int]):
    """A number with k, M, G or T behind it, in steps of 1024."""

    def __init__(self, name: str, most: int, least: int = 1) -> None:
        self.name = name
        self._least, self._most = least, most

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The number. Fails, as click does, for anything else and for what is out of bounds."""
        if isinstance(value, int):
            return value
        found = amount(str(value)) or 0
        if not 1 <= found <= self._most:
            self.fail(f"{value!r} is not a {self.name} such as 24G or 32k", param, ctx)
        if found < self._least:
            self.fail(f"that is {found} bytes; did you mean {found}G?", param, ctx)
        return found


gpu_option = click.option(
    "--gpu", metavar="TARGET", help="A card by its gfx target or product name."
)
vram_option = click.option(
    "--vram",
    type=Amount("size", _MOST, _LEAST_MEMORY),
    help="The card's memory with its unit, such as 24G.",
)
tokens_option = click.option(
    "--ctx", "tokens", type=Amount("context", _MOST_CONTEXT), help="Tokens, such as 64k."
)


def cards(
    ctx: click.Context, configured: Configured, gpu: str | None, vram: int | None
) -> list[CardMemory]:
    """The card that was described, or those of this machine, for the profile of `configured`.

    Raises UsageError for a target that is not known, HostProblem where there is no such card.
    """
    found = known_cards(ctx, configured, gpu, vram)
    if found:
        return found
    what = "card" if gpu is None else f"{_known(gpu).target} card"
    raise HostProblem(
        f"this machine has no {what} whose memory is known",
        "Name the memory of the card that you think of: --vram 24G",
    )


def known_cards(
    ctx: click.Context, configured: Configured, gpu: str | None, vram: int | None
) -> list[CardMemory]:
    """As `cards`, but an empty list where there is no such card."""
    known = None if gpu is None else _known(gpu)
    if vram is None:
        return _own_cards(ctx, configured, None if known is None else known.target)
    return [_described(configured, known, vram)]


def slots(configured: Configured) -> int:
    """How many requests the server that a plan takes works on at once; they share its context."""
    from zluda_stack.plan.combination import combination_of, server_of

    catalog = context.catalog()
    return server_of(catalog, combination_of(catalog, configured.settings)).slots


def unable(configured: Configured, architecture: str) -> str | None:
    """The server that a plan takes where it cannot load models of `architecture`, else None."""
    from zluda_stack.plan.combination import unable

    found = unable(context.catalog(), configured.settings, architecture)
    return None if found is None else found.title


def _described(configured: Configured, known: Gpu | None, vram: int) -> CardMemory:
    """A card that is not here, of a target that may be `known`."""
    from zluda_stack.models.fit_report import CardMemory

    if known is None:
        return CardMemory(label="a card", memory=vram)
    overridden = bool(configured.settings.hsa_override)
    return CardMemory(
        label=known.target,
        memory=vram,
        unserved=_unserved(configured, known, overridden=overridden),
    )


def _unserved(configured: Configured, known: Gpu, *, overridden: bool) -> str | None:
    from zluda_stack.plan.gpu_target import unserved

    profile = configured.settings.profile
    return unserved(known, context.catalog(), overridden=overridden, profile=profile)


def _known(gpu: str) -> Gpu:
    from zluda_stack.catalog.nearest import find_gpu, suggest_gpu

    catalog = context.catalog()
    known = find_gpu(catalog, gpu)
    if known is not None:
        return known
    near = ", ".join(found.target for found in suggest_gpu(catalog, gpu))
    hint = f"Did you mean {near}? " if near else ""
    raise UsageError(f"no GPU named {gpu!r} is known", f"{hint}`zluda-stack gpus` lists yours.")


def _own_cards(ctx: click.Context, configured: Configured, target: str | None) -> list[CardMemory]:
    from msgspec import structs

    from zluda_stack.plan.gpu_card import cards_of
    from zluda_stack.plan.gpu_memory import card_memory

    facts = context.facts(ctx, configured.settings)
    found = []
    for card in cards_of(facts, configured, context.catalog()):
        memory = card_memory(facts, card, configured.settings.name)
        if memory is None or target not in {None, card.facts.gfx_target}:
            continue
        label, unserved = f"{card.index}: {card.label}", _why_not(configured, card)
        found.append(structs.replace(memory, label=label, unserved=unserved))
    return found


def _why_not(configured: Configured, card: Card) -> str | None:
    if card.trouble is None or card.known is None:
        return card.trouble and f"{card.trouble}."
    return _unserved(configured, card.known, overridden=card.overridden)
