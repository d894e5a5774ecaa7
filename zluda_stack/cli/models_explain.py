"""`models explain`: all that is known of a model, what it takes here, and for which clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zluda_stack.cli import cards, context, output
from zluda_stack.cli.explain import as_facts, print_explanation
from zluda_stack.cli.model_names import complete_model
from zluda_stack.cli.options import json_option, settings_options
from zluda_stack.units import gibibytes

if TYPE_CHECKING:
    from zluda_stack.catalog.schema import Model
    from zluda_stack.models.explained import Explained, OnCard
    from zluda_stack.models.fit_report import CardMemory
    from zluda_stack.settings import Profile


@click.command()
@click.argument("name", shell_complete=complete_model)
@cards.gpu_option
@cards.vram_option
@settings_options("profile")
@json_option
@click.pass_context
def explain(
    ctx: click.Context,
    /,
    name: str,
    flags: dict[str, object],
    *,
    gpu: str | None,
    vram: int | None,
    as_json: bool,
) -> None:
    """Say what is known of the model NAME, how well, and whether it is of use here.

    The cards of this machine are asked, or with --vram one that you do not have.
    """
    from zluda_stack.catalog import explain as explaining
    from zluda_stack.models.listing import find_model

    model = find_model(context.catalog(), name)
    known = explaining.explain(context.catalog(), model.name)
    profile = context.configured(ctx, flags).settings.profile
    found = _explained(model, cards.known_cards(ctx, gpu, vram), profile)
    if as_json:
        output.print_json({**as_facts(known), "use": found})
        return
    print_explanation(known)
    _print(model, found)


def _explained(model: Model, asked: list[CardMemory], profile: Profile) -> Explained:
    from zluda_stack import paths
    from zluda_stack.models.at_hand import architecture_at_hand
    from zluda_stack.models.explained import explained
    from zluda_stack.models.store import Store

    architecture = architecture_at_hand(model, Store(paths.model_store()).find(model.name))
    return explained(context.catalog(), model, architecture, asked, profile)


def _print(model: Model, found: Explained) -> None:
    if model.sha256 is None and model.hub is not None:
        output.say("What is unverified of its files is read from the hub at the first pull.")
    output.say()
    if found.cards:
        columns = ("card", "free", "takes at least", "longest context")
        output.table(columns, [_card_row(card) for card in found.cards])
        for card in found.cards:
            _print_outside(card)
    else:
        output.say("This machine has no card whose memory is known; --vram 24G describes one.")
    output.say()
    rows = [(use.title, str(use.context_floor), use.why or "yes") for use in found.uses]
    output.table(("client", "needs", "can use it"), rows)


def _print_outside(card: OnCard) -> None:
    """What it takes to serve a model with experts on a card that does not hold all of it."""
    outside = card.experts_outside
    if outside is not None:
        output.say(
            f"{card.card}: a coding client's prompt fits with the experts of {outside.layers} "
            f"layers left in the machine's memory ({gibibytes(outside.host)})."
        )


def _card_row(card: OnCard) -> tuple[str, ...]:
    if card.least is None:
        return (card.card, gibibytes(card.free), "unknown until pulled", "unknown")
    longest = "does not fit" if card.longest_context is None else str(card.longest_context)
    return (card.card, gibibytes(card.free), gibibytes(card.least), longest)
