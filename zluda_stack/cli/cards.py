"""The cards that a command on models looks at: those of this machine, or one described."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context
from zluda_stack.errors import HostProblem, UsageError
from zluda_stack.units import amount

if TYPE_CHECKING:
    from zluda_stack.models.fit_report import CardMemory

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


def cards(ctx: click.Context, gpu: str | None, vram: int | None) -> list[CardMemory]:
    """The card that was described, or those of this machine.

    Raises UsageError for a target that is not known, HostProblem where there is no such card.
    """
    found = known_cards(ctx, gpu, vram)
    if found:
        return found
    what = "card" if gpu is None else f"{_target(gpu)} card"
    raise HostProblem(
        f"this machine has no {what} whose memory is known",
        "Name the memory of the card that you think of: --vram 24G",
    )


def known_cards(ctx: click.Context, gpu: str | None, vram: int | None) -> list[CardMemory]:
    """As `cards`, but an empty list where there is no such card."""
    from zluda_stack.models.fit_report import CardMemory

    target = None if gpu is None else _target(gpu)
    if vram is None:
        return _own_cards(ctx, target)
    return [CardMemory(label=target or "a card", memory=vram)]


def _target(gpu: str) -> str:
    from zluda_stack.catalog.nearest import find_gpu, suggest_gpu

    catalog = context.catalog()
    known = find_gpu(catalog, gpu)
    if known is not None:
        return known.target
    near = ", ".join(found.target for found in suggest_gpu(catalog, gpu))
    hint = f"Did you mean {near}? " if near else ""
    raise UsageError(f"no GPU named {gpu!r} is known", f"{hint}`zluda-stack gpus` lists yours.")


def _own_cards(ctx: click.Context, target: str | None) -> list[CardMemory]:
    from zluda_stack.models.fit_report import CardMemory
    from zluda_stack.plan.gpu_card import cards_of

    configured = context.configured(ctx, {})
    facts = context.facts(ctx, configured.settings)
    return [
        CardMemory(
            label=f"{card.index}: {card.label}",
            memory=card.memory_bytes,
            used=0 if card.integrated else card.facts.vram_used_bytes or 0,
        )
        for card in cards_of(facts, configured, context.catalog())
        if card.memory_bytes is not None and target in {None, card.facts.gfx_target}
    ]
