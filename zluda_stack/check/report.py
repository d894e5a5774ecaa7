"""The whole result: as JSON facts, and the lines that people read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, structs

from zluda_stack.check.closure import INSIDE, Need
from zluda_stack.check.facts import Cubin, Function, Ptx
from zluda_stack.check.gaps import RULES, Gap, Severity
from zluda_stack.check.judge import Judged, Verdict
from zluda_stack.errors import ExitCode

EXIT_CODES = {
    Verdict.CANNOT: ExitCode.REFUSED,
    Verdict.UNJUDGED: ExitCode.USAGE,
    Verdict.GAPS: ExitCode.GAPS,
    Verdict.LIKELY: ExitCode.OK,
    Verdict.REPLACED: ExitCode.OK,
    Verdict.NO_CUDA: ExitCode.OK,
}
_MOST_USERS = 3
_MOST_ALIKE = 3
_MOST_SUBJECTS = 6
_LONGEST_NAME = 100


class Module(Struct, frozen=True, kw_only=True):
    """A PTX module in the JSON output; `misses` is what in it ZLUDA does not know."""

    name: str
    section: str | None
    container: int | None
    architecture: str
    version: str | None
    target: str | None
    bytes: int
    kernels: int
    misses: tuple[str, ...]
    problem: str | None


class FileReport(Struct, frozen=True, kw_only=True):
    """One file in the JSON output. Sizes are in bytes; names of kernels are demangled."""

    file: str
    verdict: Verdict
    kind: str
    machine: str | None
    bytes: int
    gaps: tuple[Gap, ...]
    ptx: tuple[Module, ...]
    cubins: tuple[Cubin, ...]
    imports: tuple[Function, ...]
    opens: tuple[str, ...]
    looks_up: tuple[Function, ...]
    static_cudart: bool
    needs: tuple[Need, ...]
    problem: str | None
    compiled_for: str | None


class Report(Struct, frozen=True, kw_only=True):
    """Everything. `without_cuda` counts files that hold none and are not listed."""

    verdict: Verdict
    exit_code: int
    zluda_commit: str
    compute_capability: str
    files: tuple[FileReport, ...]
    without_cuda: int


def report(
    judged: Sequence[Judged],
    verdict: Verdict,
    *,
    required: frozenset[str],
    zluda_commit: str,
    compute_capability: str,
) -> Report:
    """The result on all files; those without CUDA are listed only where they were asked for."""
    listed = [
        one for one in judged if one.verdict is not Verdict.NO_CUDA or one.facts.name in required
    ]
    return Report(
        verdict=verdict,
        exit_code=int(_exit_code(verdict, judged)),
        zluda_commit=zluda_commit,
        compute_capability=compute_capability,
        files=tuple(_file(one) for one in listed),
        without_cuda=len(judged) - len(listed),
    )


def _exit_code(verdict: Verdict, judged: Iterable[Judged]) -> ExitCode:
    """That of the verdict; what cannot be read for want of a permission is the host's fault."""
    unjudged = [one.facts for one in judged if one.verdict is Verdict.UNJUDGED]
    if verdict is Verdict.UNJUDGED and all(facts.unreadable for facts in unjudged):
        return ExitCode.HOST
    return EXIT_CODES[verdict]


def _file(one: Judged) -> FileReport:
    facts = one.facts
    return FileReport(
        file=facts.name,
        verdict=one.verdict,
        kind=facts.kind,
        machine=facts.machine,
        bytes=facts.bytes,
        gaps=one.gaps,
        ptx=tuple(_module(one) for one in facts.ptx),
        cubins=facts.cubins,
        imports=facts.imports,
        opens=facts.opens,
        looks_up=facts.looks_up,
        static_cudart=facts.static_cudart,
        needs=one.needs,
        problem=facts.problem,
        compiled_for=facts.compiled_for,
    )


def _module(one: Ptx) -> Module:
    """The module without the names of functions, which the gaps have."""
    return Module(
        name=one.name,
        section=one.section,
        container=one.container,
        architecture=one.architecture,
        version=one.version,
        target=one.target,
        bytes=one.bytes,
        kernels=one.kernels,
        misses=tuple(miss.what for miss in one.misses),
        problem=one.problem,
    )


def archive_of(name: str) -> str:
    """The archive or image that a file is in, with the mark behind it; empty for other files."""
    archive, mark, _ = name.rpartition(INSIDE)
    return archive + mark


def code_cells(file: FileReport) -> tuple[str, str, str]:
    """The table's cells for PTX, cubins and CUDA functions."""
    return (
        _architectures(one.architecture for one in file.ptx),
        _architectures(one.architecture for one in file.cubins),
        str(len(file.imports)) if file.imports else "-",
    )


def _architectures(names: Iterable[str]) -> str:
    """How many modules there are, and for which cards."""
    counts = Counter(names)
    if not counts:
        return "-"
    order = sorted(counts, key=lambda name: (len(name), name))
    shown = " ".join(name.removeprefix("sm_") for name in order)
    return f"{sum(counts.values())} ({shown})"


def folded(found: Sequence[Gap]) -> Iterator[Gap]:
    """The gaps as people want them: many of one kind as one."""
    rules = {rule.id: rule for rule in RULES}
    groups: dict[tuple[str, str, str], list[Gap]] = {}
    for one in found:
        groups.setdefault((one.id, one.of, one.fix), []).append(one)
    for group in groups.values():
        many = rules[group[0].id].many
        if len(group) <= _MOST_ALIKE or not many:
            yield from group
            continue
        subjects = [one.subject for one in group]
        listed = ", ".join(subjects[:_MOST_SUBJECTS])
        more = len(subjects) - _MOST_SUBJECTS
        text = f"{many.format(n=len(group), of=group[0].of)}: {listed}"
        users = dict.fromkeys(name for one in group for name in one.used_by)
        yield structs.replace(
            group[0],
            text=text + (f" and {more} more" if more > 0 else ""),
            used_by=tuple(users),
        )


def gap_lines(one: Gap) -> Iterator[str]:
    """A gap for people: what it is, who uses it, what to do."""
    mark = "" if one.severity is Severity.GAP else f" {one.severity.value}:"
    yield f"{one.id}{mark} {one.text}"
    if one.used_by:
        shown = [_shortened(name) for name in one.used_by[:_MOST_USERS]]
        more = len(one.used_by) - len(shown)
        yield f"  used by: {'; '.join(shown)}" + (f"; and {more} more" if more else "")
    yield f"  what to do: {one.fix}"


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 3] + "..."
