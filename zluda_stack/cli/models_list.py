"""`models list`: the models of the catalogue, which are here, and which fit a card."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import cards, context, output
from zluda_stack.cli.options import json_option, settings_options
from zluda_stack.errors import UsageError
from zluda_stack.program import program
from zluda_stack.units import gibibytes, gigabytes, megabytes

if TYPE_CHECKING:
    from zluda_stack.models.fit_list import ModelOnCard, ModelsOnCard
    from zluda_stack.models.fit_report import CardMemory
    from zluda_stack.models.listing import ListedModel
    from zluda_stack.models.store import Store
    from zluda_stack.settings import Configured

_YES_NO = {True: "yes", False: "no", None: "unknown"}
_GIGABYTE = 10**9


@click.command("list")
@click.option("--fits", is_flag=True, help="Weigh them against a card, the best first.")
@cards.gpu_option
@cards.vram_option
@cards.tokens_option
@settings_options("profile")
@json_option
@click.pass_context
def list_(
    ctx: click.Context,
    /,
    flags: dict[str, object],
    *,
    fits: bool,
    gpu: str | None,
    vram: int | None,
    tokens: int | None,
    as_json: bool,
) -> None:
    """Show the models of the catalogue, and which of them are here.

    With --fits they are weighed against the cards of this machine, or with --vram against one
    that you do not have: with a context of --ctx tokens, else with what a coding client needs.
    """
    from zluda_stack import paths
    from zluda_stack.models.store import Store

    store = Store(paths.model_store())
    if fits:
        configured = context.configured(ctx, flags)
        asked = cards.cards(ctx, configured, gpu, vram)
        _list_fitting(store, asked, tokens, configured, as_json=as_json)
        return
    if flags or any(given is not None for given in (gpu, vram, tokens)):
        raise UsageError(
            "--gpu, --vram, --ctx and --profile describe what a model must fit", "Add --fits."
        )
    _list_all(store, as_json=as_json)


def _list_all(store: Store, *, as_json: bool) -> None:
    from zluda_stack.models.listing import listed

    lines = listed(context.catalog(), store)
    if as_json:
        output.print_json(lines)
        return
    columns = ("model", "state", "size", "params", "context", "tools", "licence")
    output.table(columns, [_row(line) for line in lines])


def _row(line: ListedModel) -> tuple[str, ...]:
    whole = line.size if line.size is not None else line.bytes
    partial = line.state in {"pulling", "incomplete"}
    licence = "restricted" if line.restriction else line.licence
    return (
        line.name,
        f"{line.state} ({_size(line.bytes)})" if partial else line.state,
        _size(whole) if whole else "unknown",
        line.parameters or "unknown",
        "unknown" if line.context_length is None else str(line.context_length),
        _YES_NO[line.tools],
        licence or "unknown",
    )


def _size(count: int) -> str:
    return megabytes(count) if count < _GIGABYTE else gigabytes(count)


def _list_fitting(
    store: Store,
    asked: list[CardMemory],
    tokens: int | None,
    configured: Configured,
    *,
    as_json: bool,
) -> None:
    from zluda_stack.models.at_hand import architectures_at_hand
    from zluda_stack.models.client_use import agent_floor
    from zluda_stack.models.fit_list import models_on_card
    from zluda_stack.plan.combination import offered

    everything = context.catalog()
    catalog = offered(everything, configured.settings)
    wish = tokens or agent_floor(catalog)
    known = architectures_at_hand(catalog, store)
    profile, slots = configured.settings.profile, cards.slots(configured)
    found = [
        models_on_card(catalog, known, card, wish, profile=profile, slots=slots) for card in asked
    ]
    if as_json:
        output.print_json(found)
        return
    because = "" if tokens else ", as a coding client needs"
    if len(catalog.models) < len(everything.models):
        few = len(everything.models) - len(catalog.models)
        output.note(f"{few} models are left out, which the server of these settings cannot load.")
    for number, one in enumerate(found):
        if number:
            output.say()
        _print_card(one, because)


def _print_card(found: ModelsOnCard, because: str) -> None:
    free = "" if found.free == found.memory else f", of which {gibibytes(found.free)} are free"
    output.heading(f"{found.card}: {gibibytes(found.memory)}{free}")
    share = f"; {found.slots} slots share it" if found.slots > 1 else ""
    output.say(f"A context of {found.context} tokens{because}{share}.")
    serves = f"if that serves the card: `{program()} gpus` tells."
    if found.unserved is not None:
        serves = f"which does not serve the card: {found.unserved}"
    output.say(textwrap.fill(f"By the {found.profile} profile, {serves}", width=80))
    columns = ("model", "params", "takes", "longest", "tools", "fits")
    output.table(columns, [_fit_row(line) for line in found.models])
    outside = [line.name for line in found.models if line.experts_outside is not None]
    if outside:
        output.say()
        output.say(f"With some of their experts in the machine's memory (`{program()} models fit`")
        output.say("NAME tells how many) these can be served too, and slower:")
        output.say(textwrap.fill(", ".join(outside), break_on_hyphens=False))


def _fit_row(line: ModelOnCard) -> tuple[str, ...]:
    tools = _YES_NO[line.tools]
    if line.total is None:
        return (line.name, line.parameters, "unknown", "unknown", tools, line.why)
    return (
        line.name,
        line.parameters,
        gibibytes(line.total),
        "none" if line.largest_context is None else str(line.largest_context),
        tools,
        line.why or "yes",
    )
