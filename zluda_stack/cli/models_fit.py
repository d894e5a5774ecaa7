"""`models fit`: does this model fit that card, with which context?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import cards, context, output
from zluda_stack.cli.model_names import complete_model_or_file
from zluda_stack.cli.options import json_option, settings_options
from zluda_stack.errors import HostProblem, UsageError

if TYPE_CHECKING:
    from zluda_stack.models.architecture import Architecture
    from zluda_stack.models.fit import Serving
    from zluda_stack.models.fit_report import CardFit, FitReport

_PARTS = (
    ("weights", "weights"),
    ("cache", "KV cache ({kv})"),
    ("states", "recurrent states"),
    ("compute", "compute buffer"),
    ("scratch", "BLAS copies"),
    ("runtime", "runtime"),
)
_ATTENTION = {"plain": "without FlashAttention", "flash": "with FlashAttention"}


@click.command()
@click.argument("model", metavar="MODEL|FILE", shell_complete=complete_model_or_file)
@cards.gpu_option
@cards.vram_option
@cards.tokens_option
@click.option("--kv-type", metavar="TYPE", default="f16", help="Type of the cached keys.")
@click.option(
    "--slots",
    type=click.IntRange(1, 64),
    help="Requests at a time, which share the context; else as the server has them.",
)
@settings_options("profile")
@json_option
@click.pass_context
def fit(
    ctx: click.Context,
    /,
    model: str,
    flags: dict[str, object],
    *,
    gpu: str | None,
    vram: int | None,
    as_json: bool,
    **serving: object,
) -> None:
    """Tell what MODEL takes of a card's memory, and the largest context that fits.

    MODEL is one of the catalogue, whether it is here or not, or a GGUF file. Without --gpu and
    --vram the cards of this machine are asked; with --vram it can be one that you do not have.
    """
    from zluda_stack.models.fit_report import fit_report
    from zluda_stack.models.flash import as_served

    shape = _shape(model)
    configured = context.configured(ctx, flags)
    serving["slots"] = serving["slots"] or cards.slots(configured)
    asked = as_served(shape, _serving(shape, model, serving), configured.settings.profile)
    report = fit_report(model, shape, asked, cards.cards(ctx, configured, gpu, vram))
    if as_json:
        output.print_json(report)
        return
    _print(report)
    server = cards.unable(configured, shape.name)
    if server is not None:
        output.note(f"{server} cannot load {shape.name} models.")


def _shape(name: str) -> Architecture:
    """The shape of the model: that of its file, or the published one of a model that is not here.

    Raises UsageError for an unknown name, HostProblem for a file that cannot be computed and for
    a model of which nothing is known without its file.
    """
    from zluda_stack import paths
    from zluda_stack.models.architecture import known_architecture
    from zluda_stack.models.listing import find_model
    from zluda_stack.models.published import architecture_of
    from zluda_stack.models.store import Store
    from zluda_stack.plan.model import names_a_file

    if names_a_file(name):
        return known_architecture(Path(name).expanduser().absolute())
    stored = Store(paths.model_store()).find(name)
    if stored is not None:
        return known_architecture(stored)
    # os.path takes any name, where Path would raise for one that is too long for a file's.
    if name not in context.catalog().models and os.path.exists(name):  # noqa: PTH110
        return known_architecture(Path(name).absolute())
    model = find_model(context.catalog(), name)
    published = architecture_of(model)
    if published is not None and model.shape is not None:
        evidence = model.shape.provenance.evidence.value
        output.note(f"{name} is not here: computed from its published shape ({evidence}).")
        return published
    raise HostProblem(
        f"{name} is not here, and its layers and tensors are known only from its file",
        f"`zluda-stack models pull {name}` fetches it.",
    )


def _serving(shape: Architecture, name: str, given: dict[str, object]) -> Serving:
    import msgspec

    from zluda_stack.models.fit import KV_TYPES, Serving

    kind = given["kv_type"]
    if kind not in KV_TYPES:
        raise UsageError(f"{kind!r} is no type of a KV cache", f"Known: {', '.join(KV_TYPES)}")
    trained = shape.context_length
    ceiling = context.catalog().defaults.context_ceiling
    wish = given["tokens"] or min(trained or ceiling, ceiling)
    fields = {"context": wish, "slots": given["slots"], "kv_type": kind}
    asked = msgspec.convert(fields, Serving)
    if trained is not None and asked.context > trained:
        raise UsageError(
            f"context {asked.context} is longer than {name} was trained for ({trained} tokens)",
            f"Ask for at most {trained}.",
        )
    return asked


def _print(report: FitReport) -> None:
    shared = f" shared by {report.slots} slots" if report.slots > 1 else ""
    output.say(
        f"{report.model} ({report.architecture}, {report.layers} layers), "
        f"context {report.context}{shared}, {_ATTENTION[report.attention]}:"
    )
    rows = []
    for field, words in _PARTS:
        size = getattr(report.needs, field)
        if size:
            rows.append((words.format(kv=report.kv_type), _gib(size)))
    output.table(("part", "memory"), [*rows, ("sum", _gib(report.total))])
    output.say()
    columns = ("card", "memory", "free", "fits", "batch", "longest context", "layers")
    output.table(columns, [_cells(report, card) for card in report.cards])
    for card in report.cards:
        if card.unserved is not None:
            output.say(f"{card.card}: {card.unserved}")
        _print_outside(report, card)
    if not report.compared:
        output.note(
            f"The compute buffer of {report.architecture} models was never compared with "
            "llama.cpp's: take the sum as an estimate."
        )


def _cells(report: FitReport, card: CardFit) -> tuple[str, ...]:
    layers = "none" if card.gpu_layers is None else str(card.gpu_layers - 1)  # the output is one
    return (
        card.card,
        _gib(card.memory),
        _gib(card.free),
        "yes" if card.fits else "no",
        "none" if card.batch is None else str(card.batch),
        "none" if card.largest_context is None else str(card.largest_context),
        f"{layers} of {report.layers}",
    )


def _print_outside(report: FitReport, card: CardFit) -> None:
    """How a model with experts is served on a card that does not hold all of it."""
    outside = card.experts_outside
    if outside is None:
        return
    output.say(
        f"{card.card}: it fits with the experts of {outside.layers} of {report.layers} layers in "
        f"the machine's memory, which holds {_gib(outside.host)} then, and the card "
        f"{_gib(outside.total)} with batches of {outside.batch}: as with `up --context "
        f"{report.context}`."
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
