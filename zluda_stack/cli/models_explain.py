"""`models explain`: all that is known of a model, what it takes here, and for which clients."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import cards, context, output
from zluda_stack.cli.explain import as_facts, print_explanation
from zluda_stack.cli.model_names import complete_model
from zluda_stack.cli.options import json_option, settings_options
from zluda_stack.errors import UsageError
from zluda_stack.program import program
from zluda_stack.units import gibibytes

if TYPE_CHECKING:
    from zluda_stack.catalog.schema import Model
    from zluda_stack.models.client_use import ClientUse
    from zluda_stack.models.explained import Explained, OnCard, Planned
    from zluda_stack.models.fit_report import CardMemory
    from zluda_stack.settings import Configured


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
    from zluda_stack.plan.model import names_a_file

    if names_a_file(name):
        raise UsageError(
            f"{name} is a path, and what is known of a model is in the catalogue, by its name",
            f"`{program()} models fit {quote(name)}` computes what a GGUF file takes.",
        )
    model = find_model(context.catalog(), name)
    known = explaining.explain(context.catalog(), model.name)
    configured = context.configured(ctx, flags)
    asked = cards.known_cards(ctx, configured, gpu, vram)
    found = _explained(model, asked, configured)
    if as_json:
        output.print_json({**as_facts(known), "use": found})
        return
    print_explanation(known)
    profile = f" --profile {flags['profile']}" if "profile" in flags else ""
    _print(model, found, f"{program()} up --model {model.name}{profile}")


def _explained(model: Model, asked: list[CardMemory], configured: Configured) -> Explained:
    from zluda_stack import paths
    from zluda_stack.models.at_hand import architecture_at_hand
    from zluda_stack.models.explained import How, explained
    from zluda_stack.models.store import Store

    architecture = architecture_at_hand(model, Store(paths.model_store()).find(model.name))
    settings = configured.settings
    how = How(
        profile=settings.profile,
        slots=cards.slots(configured),
        context=settings.context,
        unable=None if architecture is None else cards.unable(configured, architecture.name),
    )
    return explained(context.catalog(), model, architecture, asked, how)


def _print(model: Model, found: Explained, command: str) -> None:
    if model.sha256 is None and model.hub is not None:
        output.say("What is unverified of its files is read from the hub at the first pull.")
    output.say()
    if found.cards:
        columns = ("card", "free", "takes at least", "longest context")
        output.table(columns, [_card_row(card) for card in found.cards])
        for card in found.cards:
            _print_planned(card, command)
    else:
        output.say("This machine has no card whose memory is known; --vram 24G describes one.")
    output.say()
    rows = [(use.title, str(use.context_floor), _can_use(use)) for use in found.uses]
    judged = "can use it" if found.cards else "could use it, where it fits"
    output.table(("client", "needs", judged), rows)


def _can_use(use: ClientUse) -> str:
    return use.why or f"yes, {use.how}".removesuffix(", ")


def _print_planned(card: OnCard, command: str) -> None:
    """What `command` makes of the model on that card, as `plan` tells it."""
    if card.unserved is not None:
        output.say(f"{card.card}: {card.unserved}")
    planned = card.planned
    if planned is None:
        return
    output.say(
        f"{card.card}: `{command}` takes a context of {planned.context} tokens in batches of "
        f"{planned.batch}{_left_out(planned)}, and {gibibytes(planned.total)} of the card."
    )
    if planned.spare:
        output.say(
            f"{planned.spare >> 20} MiB are left to other programs then; with --context all "
            "of the card counts."
        )


def _left_out(planned: Planned) -> str:
    if planned.experts_outside:
        return (
            f", with the experts of {planned.experts_outside} of {planned.layers} layers in the "
            f"machine's memory ({gibibytes(planned.host)})"
        )
    if planned.gpu_layers < planned.layers:
        return (
            f", with {planned.gpu_layers} of {planned.layers} layers on the card and the others "
            f"left to the CPU ({gibibytes(planned.host)})"
        )
    return ""


def _card_row(card: OnCard) -> tuple[str, ...]:
    if card.least is None:
        return (card.card, gibibytes(card.free), "unknown until pulled", "unknown")
    longest = "does not fit" if card.longest_context is None else str(card.longest_context)
    return (card.card, gibibytes(card.free), gibibytes(card.least), longest)
