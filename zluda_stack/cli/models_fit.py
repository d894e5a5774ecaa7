"""`models fit`: does this model fit that card, with which context?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, output
from zluda_stack.cli.options import json_option
from zluda_stack.errors import HostProblem, UsageError

if TYPE_CHECKING:
    from zluda_stack.models.architecture import Architecture
    from zluda_stack.models.fit import Serving
    from zluda_stack.models.fit_report import CardFit, CardMemory, FitReport

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_STEPS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_MOST = 1 << 50
_MOST_CONTEXT = 1 << 24
_PARTS = (
    ("weights", "weights"),
    ("cache", "KV cache ({kv})"),
    ("states", "recurrent states"),
    ("compute", "compute buffer"),
    ("scratch", "cuBLAS copies"),
    ("runtime", "CUDA context"),
)


class _Amount(click.ParamType[int]):
    """A number with k, M, G or T behind it, in steps of 1024."""

    def __init__(self, name: str, most: int) -> None:
        self.name = name
        self._most = most

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        amount = float(match[1]) * 1024 ** _STEPS[match[2].lower()] if match else 0
        if not 1 <= amount <= self._most:
            self.fail(f"{value!r} is not a {self.name} such as 24G or 32k", param, ctx)
        return int(amount)


@click.command()
@click.argument("model", metavar="MODEL|FILE")
@click.option("--gpu", metavar="TARGET", help="A card by its gfx target or product name.")
@click.option("--vram", type=_Amount("size", _MOST), help="Its memory, such as 24G.")
@click.option(
    "--ctx", "tokens", type=_Amount("context", _MOST_CONTEXT), help="Tokens, such as 64k."
)
@click.option("--kv-type", metavar="TYPE", default="f16", help="Type of the cached keys.")
@click.option(
    "--slots",
    type=click.IntRange(1, 64),
    default=4,
    help="Requests at a time; they share the context.",
)
@json_option
@click.pass_context
def fit(
    ctx: click.Context,
    /,
    model: str,
    *,
    gpu: str | None,
    vram: int | None,
    as_json: bool,
    **serving: object,
) -> None:
    """Tell what MODEL takes of a card's memory, and the largest context that fits.

    MODEL is one of the catalogue that is here, or a GGUF file. Without --gpu and --vram the
    cards of this machine are asked; with --vram it can be a card that you do not have.
    """
    from zluda_stack.models.fit_report import fit_report

    shape = _shape(model)
    asked = _serving(shape, model, serving)
    report = fit_report(model, shape, asked, _cards(ctx, gpu, vram))
    if as_json:
        output.print_json(report)
        return
    _print(report)


def _shape(name: str) -> Architecture:
    """The shape of the model. Raises HostProblem for one that is not here or not whole."""
    from zluda_stack.models.architecture import read_architecture
    from zluda_stack.models.gguf_reader import BadGguf

    path = _path(name)
    try:
        return read_architecture(path)
    except (BadGguf, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        other = getattr(error, "filename", None) or path
        raise HostProblem(f"{other}: {reason}", "Give the path of a whole GGUF file.") from error


def _path(name: str) -> Path:
    from zluda_stack import paths
    from zluda_stack.models.listing import find_model, listed
    from zluda_stack.models.store import EntryState, Store
    from zluda_stack.plan.model import names_a_file

    if names_a_file(name):
        return Path(name).expanduser().absolute()
    catalog = context.catalog()
    for line in listed(catalog, Store(paths.model_store())):
        if line.name == name and line.state == EntryState.READY.value and line.path:
            return Path(line.path)
    find_model(catalog, name)
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


def _cards(ctx: click.Context, gpu: str | None, vram: int | None) -> list[CardMemory]:
    """The card that was described, or those of this machine; raises UsageError, HostProblem."""
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
    cards = [
        CardMemory(
            label=f"{card.index}: {card.label}",
            memory=card.memory_bytes,
            used=0 if card.integrated else card.facts.vram_used_bytes or 0,
        )
        for card in cards_of(facts, configured, context.catalog())
        if card.memory_bytes is not None and target in {None, card.facts.gfx_target}
    ]
    if cards:
        return cards
    what = "card" if target is None else f"{target} card"
    raise HostProblem(
        f"this machine has no {what} whose memory is known",
        "Name the memory of the card that you think of: --vram 24G",
    )


def _print(report: FitReport) -> None:
    shared = f" shared by {report.slots} slots" if report.slots > 1 else ""
    output.say(
        f"{report.model} ({report.architecture}, {report.layers} layers), "
        f"context {report.context}{shared}:"
    )
    rows = []
    for field, words in _PARTS:
        size = getattr(report.needs, field)
        if size:
            rows.append((words.format(kv=report.kv_type), _gib(size)))
    output.table(("part", "memory"), [*rows, ("sum", _gib(report.total))])
    output.say()
    columns = ("card", "memory", "free", "fits", "largest context", "layers on the card")
    output.table(columns, [_cells(report, card) for card in report.cards])
    if not report.compared:
        output.note(
            f"The compute buffer of {report.architecture} models was never compared with "
            "llama.cpp's: take the sum as an estimate."
        )


def _cells(report: FitReport, card: CardFit) -> tuple[str, ...]:
    layers = "none" if card.gpu_layers is None else str(min(card.gpu_layers, report.layers))
    return (
        card.card,
        _gib(card.memory),
        _gib(card.free),
        "yes" if card.fits else "no",
        "none" if card.largest_context is None else str(card.largest_context),
        f"{layers} of {report.layers}",
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
