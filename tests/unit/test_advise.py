"""The decision of `advise`: every case, and that every part of every rule is needed for one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
import yaml
from msgspec import structs

from zluda_stack.advise.decide import Advice, decide
from zluda_stack.advise.question import TASKS, Question, Situation, Subject
from zluda_stack.catalog.advice import Book, Rule, Way, advice
from zluda_stack.catalog.packages import rocm_packages
from zluda_stack.cli.advise import advise as advise_command
from zluda_stack.cli.main import cli
from zluda_stack.plan.types import Notice

BOOK = advice()
CASES: list[Any] = yaml.safe_load(
    (Path(__file__).parents[1] / "data" / "advice.yml").read_text(encoding="utf-8")
)
SMALL = {"default_model": "smollm2-135m"}
CARD = {"target": "gfx1100", "card": "gfx1100 (RX 7900 XTX)", **SMALL}
BOTH = {"where": "here", "zluda": "yes", "native": "rocm", **CARD}
NATIVE = {**BOTH, "zluda": "no"}
VULKAN = {**NATIVE, "native": "vulkan"}
NOWHERE = {"where": "nowhere", "zluda": "none", "native": "none", **SMALL}
CARDS: dict[str, dict[str, str]] = {
    "both": BOTH,
    "named": {**BOTH, "where": "named"},
    "native": NATIVE,
    "vulkan": VULKAN,
    "nowhere": NOWHERE,
    "nvidia": {**NOWHERE, "nvidia": "yes"},
    "nvidia-vulkan": {**VULKAN, "nvidia": "yes"},
    "nvidia-native": {**NATIVE, "nvidia": "yes"},
    "nvidia-both": {**BOTH, "nvidia": "yes"},
    "hidden": {**BOTH, "trouble": "yes", "problem": "/dev/kfd is missing"},
    "unreached": {**NOWHERE, "trouble": "yes", "problem": "no driver"},
}
TORCH = rocm_packages().packages[:1]


def question(card: str, thing: dict[str, str], task: str) -> Question:
    return Question(
        situation=msgspec.convert(CARDS[card], Situation),
        subject=msgspec.convert(
            {"name": "" if thing["subject"] == "overview" else "x", **thing}, Subject
        ),
        task=None if task == "none" else msgspec.convert(task, type(None) | Any),
    )


QUESTIONS = [question(*case[:3]) for case in CASES]


def answered(asked: Question, book: Book) -> tuple[str, list[str]]:
    """The rule and its ways; what no rule has an answer to is one too."""
    try:
        told = decide(asked, book, TORCH)
    except LookupError:
        return ("none", [])
    return (told.code, [way.name for way in told.ways])


ANSWERS = [answered(asked, BOOK) for asked in QUESTIONS]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: "-".join(map(str, (case[0], *case[1].values(), case[2])))
)
def test_a_case_gets_its_advice(case: Any) -> None:
    card, thing, task, code, ways = case
    assert answered(question(card, thing, task), BOOK) == (code, ways)


def mutants() -> Iterator[tuple[str, Book]]:
    """The book with one part taken out, named by it."""
    rules = BOOK.rules
    for at, rule in enumerate(rules):
        yield rule.code, structs.replace(BOOK, rules=rules[:at] + rules[at + 1 :])
        for changed, part in _less(rule):
            yield part, structs.replace(BOOK, rules=(*rules[:at], changed, *rules[at + 1 :]))
    for name, way in BOOK.ways.items():
        for other, part in _opened(way):
            yield f"{name} {part}", structs.replace(BOOK, ways={**BOOK.ways, name: other})


def _less(rule: Rule) -> Iterator[tuple[Rule, str]]:
    for field, values in rule.when.items():
        if field == "subject":  # what the rule is about, which often follows from the rest
            continue
        rest = {key: value for key, value in rule.when.items() if key != field}
        yield structs.replace(rule, when=rest), f"{rule.code} without {field}"
        for value in values:
            fewer = tuple(one for one in values if one != value)
            yield (
                structs.replace(rule, when={**rule.when, field: fewer}),
                f"{rule.code} without {field}={value}",
            )
    for way in rule.ways:
        fewer = tuple(one for one in rule.ways if one != way)
        yield structs.replace(rule, ways=fewer), f"{rule.code} without the way {way}"
    if len(rule.ways) > 1:
        yield structs.replace(rule, ways=rule.ways[::-1]), f"{rule.code} the other way round"


def _opened(way: Way) -> Iterator[tuple[Way, str]]:
    for field in way.needs:
        rest = {key: value for key, value in way.needs.items() if key != field}
        yield structs.replace(way, needs=rest), f"without the need of {field}"
    for field in way.unless:
        rest = {key: value for key, value in way.unless.items() if key != field}
        yield structs.replace(way, unless=rest), f"without what forbids {field}"


MUTANTS = dict(mutants())


@pytest.mark.parametrize("name", MUTANTS)
def test_nothing_can_be_taken_out_of_the_book_without_a_case_that_tells(name: str) -> None:
    told = (answered(asked, MUTANTS[name]) for asked in QUESTIONS)
    assert any(one != other for one, other in zip(told, ANSWERS, strict=True))


THINGS: list[dict[str, str]] = [
    {"subject": "overview"},
    *({"subject": "model", "fits": fits} for fits in ("yes", "no", "unknown")),
    *(
        {"subject": "python", "code": "none", "stays": "none", "packages": many}
        for many in ("all", "some", "none")
    ),
    *(
        {"subject": "source", "code": code, "stays": stays, "packages": many}
        for code in ("cuda", "own-hip", "none")
        for stays in ("none", "by-hand", "not-convertible")
        for many in ("all", "some", "none")
    ),
    *(
        {"subject": "program", "form": form, "verdict": verdict, "package": package}
        for form in ("binary", "library", "folder", "wheel", "package", "image")
        for verdict in ("likely", "gaps", "cannot", "unjudged", "no-cuda", "replaced")
        for package in ("yes", "no")
    ),
]
FOR_ROCM = {"native-serve", "rocm-build", "framework"}
FOR_NVIDIA = {name for name, way in BOOK.ways.items() if way.path == "cuda"}
FOR_ZLUDA = {name for name, way in BOOK.ways.items() if way.path == "translate"}


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("task", ["none", *TASKS])
def test_there_is_advice_for_everything_and_none_that_cannot_be_followed(
    card: str, task: str
) -> None:
    known = CARDS[card]
    for thing in THINGS:
        told = decide(question(card, thing, task), BOOK, TORCH)
        names = {way.name for way in told.ways}
        assert told.path == told.ways[0].path
        assert known["native"] == "rocm" or not names & FOR_ROCM
        assert known["zluda"] == "yes" or not names & FOR_ZLUDA
        assert known["native"] == "vulkan" or "vulkan-serve" not in names
        assert known.get("nvidia") == "yes" or not names & FOR_NVIDIA
        assert known["where"] == "nowhere" or "name-card" not in names


def commands() -> list[str]:
    """Every command that any case is given, with a name that needs quotes."""
    found: set[str] = set()
    for asked in QUESTIONS:
        name = "" if asked.subject.subject == "overview" else "a b; rm -rf $HOME"
        odd = structs.replace(asked, subject=structs.replace(asked.subject, name=name))
        found.update(command for way in decide(odd, BOOK, TORCH).ways for command in way.commands)
    return sorted(found)


@pytest.mark.parametrize("command", commands())
def test_every_command_is_one_of_this_program(command: str) -> None:
    program, *arguments = shlex.split(command)
    assert program == "zluda-stack"
    if "rm -rf" in command:
        assert {"a b; rm -rf $HOME", "./a b; rm -rf $HOME"} & set(arguments)
    _parse(cli, arguments)


def _parse(group: click.Command, arguments: list[str]) -> None:
    """Parse as the program does, down to the last command, and run nothing."""
    context = group.make_context("zluda-stack", list(arguments), obj=None)
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, command, below = context.command.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(name, below, parent=context)


def test_the_tasks_that_can_be_typed_are_those_that_rules_know() -> None:
    (option,) = [one for one in advise_command.params if one.name == "task"]
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == TASKS


def test_every_way_is_in_a_rule_and_has_its_source() -> None:
    used = {way for rule in BOOK.rules for way in rule.ways}
    assert used == set(BOOK.ways)
    assert all(way.provenance.source and way.provenance.date for way in BOOK.ways.values())


def test_conditions_name_fields_and_values_that_there_are() -> None:
    fields = {**_values(Situation), **_values(Subject), "task": {"none", *TASKS}}
    conditions = [rule.when for rule in BOOK.rules]
    conditions += [each for way in BOOK.ways.values() for each in (way.needs, way.unless)]
    for condition in conditions:
        for field, values in condition.items():
            assert set(values) <= fields[field]


def _values(kind: type[msgspec.Struct]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    described = msgspec.inspect.type_info(kind)
    assert isinstance(described, msgspec.inspect.StructType)
    for field in described.fields:
        if isinstance(field.type, msgspec.inspect.LiteralType):
            found[field.name] = {str(value) for value in field.type.values}
    return found


def test_what_this_machine_lacks_stands_beside_the_commands_that_need_it() -> None:
    asked = question("both", {"subject": "overview"}, "none")
    lacking = structs.replace(
        asked.situation,
        containers=Notice(code="docker", message="no Docker", hint="Install it."),
        on_card=Notice(code="docker-desktop", message="no card in it", hint="Another context."),
        cpu=Notice(code="embedded-packages", message="no packages", hint="pip"),
    )
    ways = decide(structs.replace(asked, situation=lacking), BOOK, TORCH).ways
    told = {one.command: one.message for way in ways for one in way.missing}
    assert told == {
        "zluda-stack up --profile native": "no card in it",
        "zluda-stack run -- ./program": "no card in it",
        "zluda-stack toolbox hipify ./folder": "no Docker",
        "zluda-stack up --gpu none": "no packages",
    }
    assert not any(way.missing for way in decide(asked, BOOK, TORCH).ways)


def test_a_package_that_is_not_for_the_card_is_told_so() -> None:
    vllm = rocm_packages().named("vllm")
    assert vllm is not None
    asked = question("both", {"subject": "python", "packages": "some"}, "none")
    older = structs.replace(asked, situation=structs.replace(asked.situation, target="gfx1030"))
    assert "not for gfx1030" in _details(decide(older, BOOK, (vllm,)))
    assert "not for" not in _details(decide(asked, BOOK, (vllm,))).replace("not for Radeon", "")


def _details(told: Advice) -> str:
    return "\n".join(detail for way in told.ways for detail in way.details)
