"""What was found of the thing that is asked about, as a Subject. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from zluda_stack.advise.decide import is_there
from zluda_stack.advise.question import Situation, Subject
from zluda_stack.catalog.packages import RocmPackage
from zluda_stack.catalog.porting import Severity
from zluda_stack.check.gaps import Severity as GapSeverity
from zluda_stack.check.judge import Verdict
from zluda_stack.check.report import Report, folded
from zluda_stack.port.python import Asked
from zluda_stack.port.tree import Kind, Tree

Form = Literal["binary", "library", "folder", "wheel", "package", "image"]
_VERDICTS: dict[Verdict, Literal["likely", "gaps", "cannot", "unjudged", "no-cuda", "replaced"]] = {
    Verdict.LIKELY: "likely",
    Verdict.GAPS: "gaps",
    Verdict.CANNOT: "cannot",
    Verdict.UNJUDGED: "unjudged",
    Verdict.NO_CUDA: "no-cuda",
    Verdict.REPLACED: "replaced",
}
_MOST_KINDS = 6
_MOST_GAPS = 3
_LONGEST = 90


def of_program(
    name: str, form: Form, report: Report, package: RocmPackage | None, situation: Situation
) -> Subject:
    """A program by what `check` says of it; `package` is what it is of, where that is known."""
    there = package is not None and is_there(package, situation.target)
    return Subject(
        subject="program",
        name=name,
        form=form,
        verdict=_VERDICTS[report.verdict],
        package="yes" if there else "no",
        found=tuple(_of_report(report)),
    )


def _of_report(report: Report) -> Iterator[str]:
    gaps = [
        gap for file in report.files for gap in file.gaps if gap.severity is not GapSeverity.NOTE
    ]
    many = f"; {_n(len(gaps), 'gap')} in {_n(len(report.files), 'file')}" if gaps else ""
    yield f"check, on ZLUDA {report.zluda_commit[:8]}: {report.verdict.value}{many}"
    kinds = list(folded(gaps))
    for gap in kinds[:_MOST_GAPS]:
        yield f"  {gap.id} {_short(gap.text)}"
    if len(kinds) > _MOST_GAPS:
        yield f"  and {len(kinds) - _MOST_GAPS} more"


def of_sources(name: str, tree: Tree, asked: Sequence[Asked], situation: Situation) -> Subject:
    """A folder or file of sources: CUDA C++, a Python project, or both."""
    packages = tuple(each.package for each in asked)
    worst: Literal["none", "by-hand", "not-convertible"] = "none"
    if tree.count(Severity.NOT_CONVERTIBLE):
        worst = "not-convertible"
    elif tree.count(Severity.BY_HAND):
        worst = "by-hand"
    is_python = not tree.files and bool(packages)
    return Subject(
        subject="python" if is_python else "source",
        name=name,
        code=_code(tree, is_python=is_python),
        stays=worst,
        extension="yes" if tree.extends_torch else "no",
        packages=_how_many(packages, situation.target),
        found=(*_of_tree(tree), *_of_packages(asked)),
    )


def _code(tree: Tree, *, is_python: bool) -> Literal["cuda", "own-hip", "none", "unread"]:
    if tree.files:
        return "own-hip" if tree.own_hip else "cuda"
    return "unread" if tree.unread and not is_python else "none"


def of_package(name: str, package: RocmPackage, situation: Situation) -> Subject:
    """A Python package by its name alone."""
    return Subject(
        subject="python",
        name=name,
        packages=_how_many((package,), situation.target),
    )


def _how_many(
    packages: Sequence[RocmPackage], target: str
) -> Literal["all", "some", "lacking", "none"]:
    if not packages:
        return "none"
    there = [is_there(one, target) for one in packages]
    return "all" if all(there) else "some" if any(there) else "lacking"


def _of_packages(asked: Iterable[Asked]) -> Iterator[str]:
    names = [f"{each.package.title} ({each.file})" for each in asked]
    if names:
        yield f"Python packages for a card: {', '.join(names)}"


def _of_tree(tree: Tree) -> Iterator[str]:
    if tree.files:
        yield from _of_cuda(tree)
    if tree.unread:
        yield f"{_n(tree.unread, 'file')} could not be read, had more than 4 MiB, or no text"


def _of_cuda(tree: Tree) -> Iterator[str]:
    yield (
        f"{_n(tree.files, 'file')} with CUDA, {_n(tree.lines, 'line')}, "
        f"{_n(tree.kernels, 'kernel')}"
    )
    if tree.own_hip:
        yield f"a HIP build of its own: {', '.join(tree.own_hip[:2])}"
    calls = tree.calls
    if calls.total:
        called = _n(calls.total, "call")
        yield f"{calls.convertible} of {called} of CUDA's functions have a counterpart"
    for kind in tree.kinds[:_MOST_KINDS]:
        yield f"  {_kind(kind)}"
    if len(tree.kinds) > _MOST_KINDS:
        yield f"  and {len(tree.kinds) - _MOST_KINDS} more kinds"


def _kind(kind: Kind) -> str:
    instead = f"; instead: {kind.instead}" if kind.instead else ""
    where = f"{kind.count} in {_n(kind.files, 'file')}, first {kind.first}"
    return f"{kind.severity.value}: {kind.title}, {where}{instead}"


def _n(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
