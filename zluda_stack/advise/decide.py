"""The decision: which rule holds, which of its ways are open, in which order and why. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from msgspec import Struct

from zluda_stack.advise.question import Question, Situation, Subject
from zluda_stack.catalog.advice import Book, Condition, Path, Rule, Way
from zluda_stack.catalog.packages import RocmPackage, Support
from zluda_stack.catalog.schema import Evidence, Provenance
from zluda_stack.plan.types import Notice

# The ways that say of each package what there is of it.
_OF_PACKAGES = frozenset({"packages", "other-packages"})
# The commands of this program that start containers; `up` on the CPU may need none.
_WITH_CARD = frozenset({"up", "run"})
_IN_CONTAINERS = frozenset({"toolbox", "adapt"})
_ON_THE_CPU = ("up", "--gpu", "none")


class Missing(Struct, frozen=True, kw_only=True):
    """What `command` of a way lacks on this machine: why it would be refused, and the next step."""

    command: str
    message: str
    hint: str


class OpenWay(Struct, frozen=True, kw_only=True):
    """A way that is open, as it is told: `commands` are this program's, `elsewhere` others'.

    `missing` has the commands that this machine cannot carry out as it is.
    """

    name: str
    path: Path
    title: str
    why: str
    commands: tuple[str, ...]
    elsewhere: tuple[str, ...]
    missing: tuple[Missing, ...]
    details: tuple[str, ...]
    evidence: Evidence
    provenance: Provenance


class ClosedWay(Struct, frozen=True):
    """A way of the rule that is not open here, and the word that closes it."""

    name: str
    because: str


class Advice(Struct, frozen=True, kw_only=True):
    """The answer; the first of `ways` is what to take. `code` is the rule's name."""

    code: str
    path: Path
    says: str
    card: str
    found: tuple[str, ...]
    notes: tuple[str, ...]
    ways: tuple[OpenWay, ...]
    closed: tuple[ClosedWay, ...]


def decide(question: Question, book: Book, packages: tuple[RocmPackage, ...] = ()) -> Advice:
    """The advice for `question`; `packages` are those of a Python project.

    Raises LookupError when no rule holds, or none of its ways is open: a fault of the book.
    """
    rule = rule_for(question, book)
    closing = {name: _closing(book.ways[name], question) for name in rule.ways}
    ways = tuple(
        _told(name, book.ways[name], question, packages)
        for name, because in closing.items()
        if not because
    )
    if not ways:
        raise LookupError(f"no way of {rule.code} is open")
    return Advice(
        code=rule.code,
        path=ways[0].path,
        says=_filled(rule.says, question),
        card=question.situation.card,
        found=question.subject.found,
        notes=question.situation.notes,
        ways=ways,
        closed=tuple(ClosedWay(name, because) for name, because in closing.items() if because),
    )


def rule_for(question: Question, book: Book) -> Rule:
    """The first rule that holds. Raises LookupError when there is none."""
    for rule in book.rules:
        if holds(rule.when, question):
            return rule
    raise LookupError("no rule holds")


def holds(condition: Condition, question: Question) -> bool:
    """True when every field of the condition has one of its values."""
    return all(question.says(field) in values for field, values in condition.items())


def _closing(way: Way, question: Question) -> str:
    """The first word that closes `way`, empty for one that is open."""
    for field, values in way.needs.items():
        if question.says(field) not in values:
            return f"{field} is {question.says(field)}"
    for field, values in way.unless.items():
        if question.says(field) in values:
            return f"{field} is {question.says(field)}"
    return ""


def _told(name: str, way: Way, question: Question, packages: tuple[RocmPackage, ...]) -> OpenWay:
    is_packages = name in _OF_PACKAGES
    target = question.situation.target
    there = [one for one in packages if is_packages and is_there(one, target)]
    commands = tuple(
        _filled(command, question, _lacking(packages, target)) for command in way.commands
    )
    return OpenWay(
        name=name,
        path=way.path,
        title=way.title,
        why=_filled(way.why, question),
        commands=commands,
        elsewhere=way.elsewhere + tuple(one.install for one in there if one.install),
        missing=tuple(_missing(commands, question.situation)),
        details=tuple(_details(packages, target)) if is_packages else (),
        evidence=way.provenance.evidence,
        provenance=way.provenance,
    )


def _missing(commands: tuple[str, ...], situation: Situation) -> Iterator[Missing]:
    for command in commands:
        lack = _lack_of(shlex.split(command)[1:], situation)
        if lack is not None:
            yield Missing(command=command, message=lack.message, hint=lack.hint)


def _lack_of(words: list[str], situation: Situation) -> Notice | None:
    if tuple(words[: len(_ON_THE_CPU)]) == _ON_THE_CPU:
        return situation.cpu
    if words[0] in _WITH_CARD:
        return situation.on_card
    return situation.containers if words[0] in _IN_CONTAINERS else None


def _details(packages: tuple[RocmPackage, ...], target: str) -> Iterator[str]:
    for package in packages:
        none = "no ROCm build: " if package.support is Support.NO else ""
        lacks = "" if serves(package, target) else f"; not for {target}"
        proof = package.provenance.evidence.value
        yield f"{package.title}: {none}{package.offers}{lacks} ({proof})"


def serves(package: RocmPackage, target: str) -> bool:
    """True when there is something of the package for the target (any, where none is named)."""
    return not (target and package.cards) or target in package.cards


def is_there(package: RocmPackage, target: str) -> bool:
    """True when the package has a ROCm build for the target (any, where none is named)."""
    return package.support is not Support.NO and serves(package, target)


def _as_path(subject: Subject) -> str:
    """The path in a form that no command takes for an option or for a program of PATH."""
    is_path = subject.subject == "source" or subject.form in ("binary", "folder", "library")
    plain = is_path and "/" not in subject.name and subject.name not in (".", "..")
    return f"./{subject.name}" if plain else subject.name


def _lacking(packages: tuple[RocmPackage, ...], target: str) -> str:
    """The name of the first that has no ROCm build for the target; a word in its place if none."""
    names = (one.names[0] for one in packages if not is_there(one, target))
    return next(names, "PACKAGE")


def _filled(text: str, question: Question, package: str = "") -> str:
    """`text` with its places filled; what the user typed is quoted for a shell."""
    situation, subject = question.situation, question.subject
    name = shlex.quote(subject.name)
    return text.format(
        path=shlex.quote(_as_path(subject)),
        image=shlex.quote(subject.name.removeprefix("image:")),
        package=package,
        card=situation.card,
        target=situation.target,
        problem=situation.problem,
        for_card=f" for {situation.card}" if situation.target else "",
        no_card=_no_card(situation),
        gpu=f" --gpu {situation.pick}" if situation.pick else "",
        listed=_listed(situation),
        small=situation.default_model,
        task="" if question.task is None else f" --task {question.task}",
        memory=" --vram 24G" if subject.subject == "model" else "",
        model=f" --model {name}" if subject.subject == "model" and subject.name else "",
        subject=f" {name}" if subject.name else "",
    )


def _no_card(situation: Situation) -> str:
    """That there is no card to compute on, where there is none."""
    if situation.trouble == "yes":
        return "the AMD card of this machine is out of reach"
    return "no AMD card is here"


def _listed(situation: Situation) -> str:
    """What `models list --fits` needs to be about the card that is meant."""
    card = f" --gpu {situation.target}" if situation.pick else ""
    if situation.vram is not None:
        card += f" --vram {situation.vram / 2**30:g}G"
    native = situation.native == "rocm" and situation.zluda != "yes"
    return card + (" --profile native" if native else "")
