"""`advise`: which way to take, why, and with which command to begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from zluda_stack.cli import cards, context, output
from zluda_stack.cli.model_names import complete_model_or_file
from zluda_stack.cli.options import json_option
from zluda_stack.errors import UsageError
from zluda_stack.program import as_typed

if TYPE_CHECKING:
    from zluda_stack.advise.decide import Advice, OpenWay
    from zluda_stack.advise.looking import Seen
    from zluda_stack.advise.question import Situation, Task
    from zluda_stack.check.report import Report
    from zluda_stack.settings import Configured, Settings

# As zluda_stack.advise.question has them, which --help need not import.
_TASKS = ("try", "production", "train", "port", "new", "serve")

# Ways that claim nothing.
_WITHOUT_PROOF = ("look", "none")


@click.command()
@click.argument(
    "thing",
    required=False,
    metavar="[PATH|MODEL|PACKAGE|IMAGE]",
    shell_complete=complete_model_or_file,
)
@click.option("--task", type=click.Choice(_TASKS), help="What it is for.")
@click.option("--gpu", metavar="CARD", help="A card by its gfx target, product name or number.")
@cards.vram_option
@json_option
@click.pass_context
def advise(
    ctx: click.Context,
    *,
    thing: str | None,
    task: str | None,
    gpu: str | None,
    vram: int | None,
    as_json: bool,
) -> None:
    """Say which way to take: ZLUDA, a native build, a port or something else, and why.

    It looks at a program, wheel or image as `check` does, at CUDA sources for what hipify cannot
    convert, at a Python project for packages that have ROCm builds, at a model for whether it
    fits. Without any of them it looks at this machine. --gpu is for a card that is not here, and
    --vram says what memory that has.
    """
    from zluda_stack.advise.decide import decide
    from zluda_stack.advise.question import Question
    from zluda_stack.catalog.advice import advice

    if thing == "":
        raise UsageError("a path is empty", "The current folder is `.`.")
    configured = context.configured(ctx, {})
    situation = _situation(ctx, configured, gpu, vram)
    seen = _seen(situation, configured.settings, thing, task)
    wish = cast("Task | None", task)
    question = Question(situation=situation, subject=seen.subject, task=wish)
    told = decide(question, advice(), seen.packages)
    if as_json:
        output.print_json({"advice": told, "situation": situation, "seen": seen, "task": task})
    else:
        _print(told)


def _situation(
    ctx: click.Context, configured: Configured, gpu: str | None, vram: int | None
) -> Situation:
    from zluda_stack.advise.situation import situation

    facts = context.facts(ctx, configured.settings)
    return situation(facts, configured, context.catalog(), gpu, vram)


def _seen(situation: Situation, settings: Settings, thing: str | None, task: str | None) -> Seen:
    from zluda_stack import paths
    from zluda_stack.advise.looking import Looker, Seen
    from zluda_stack.advise.question import Subject
    from zluda_stack.cli import check
    from zluda_stack.models.store import Store

    if thing is None:
        subject = Subject(subject="model" if task == "serve" else "overview", fits="unknown")
        return Seen(subject=subject)
    looker = Looker(
        situation=situation,
        catalog=context.catalog(),
        settings=settings,
        store=Store(paths.model_store()),
        examine=_examined,
        tell=check.teller(),
    )
    return looker.at(thing)


def _examined(thing: str) -> Report:
    from zluda_stack.cli import check

    return check.examined(check.source(thing, None))


def _print(told: Advice) -> None:
    is_target = told.says.startswith("gfx")
    output.heading((told.says if is_target else told.says[:1].upper() + told.says[1:]) + ".")
    for line in (*told.found, *told.notes):
        output.say(output.printable(line))
    for number, way in enumerate(told.ways, start=1):
        output.say()
        _print_way(number, way)
    output.say()
    for hint in dict.fromkeys(one.hint for way in told.ways for one in way.missing):
        output.say(f"First: {as_typed(output.printable(hint))}")
    output.say(f"Card: {told.card}. With --json: the sources and their dates, and all findings.")


def _print_way(number: int, way: OpenWay) -> None:
    proof = "" if way.path in _WITHOUT_PROOF else f" ({way.evidence.value})"
    output.say(f"{number}. {output.printable(way.title)}: {output.printable(way.why)}{proof}")
    for detail in way.details:
        output.say(f"   {detail}")
    lacks = {one.command: one.message for one in way.missing}
    for command in (*way.commands, *way.elsewhere):
        output.say(f"   $ {_typed(command)}")
        if command in lacks:
            output.say(f"     first: {output.printable(lacks[command])}")


def _typed(command: str) -> str:
    """The command as the user can type it."""
    return as_typed(f"`{command}")[1:]
