"""Gates `symbols` and `opcodes`: what programs use of CUDA that ZLUDA does not cover."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from zluda_stack.catalog.coverage import Coverage
from zluda_stack.cuda import coverage as covering
from zluda_stack.cuda import elf, ptx
from zluda_stack.cuda.coverage import Support, SymbolUse
from zluda_stack.cuda.modules import modules
from zluda_stack.gates.verdict import Finding, Verdict, counted


def check_symbols(
    files: Sequence[Path], *, coverage: Coverage, accepted: Iterable[str] = ()
) -> Verdict:
    """Look up every CUDA function that `files` import; only `accepted` ones may be missing.

    Raises StackError for a file that is no ELF file, damaged or unreadable.
    """
    uses: dict[SymbolUse, Path] = {}
    for path in files:
        for use in covering.cuda_symbols(coverage, elf.read(path)):
            uses.setdefault(use, path)
    missing = {use: path for use, path in uses.items() if use.support is not Support.IMPLEMENTED}
    allowed = set(accepted)
    return _verdict(
        gate="symbols",
        checked=len(uses),
        what="CUDA function",
        where="of those imported",
        allowed=allowed,
        findings=[
            Finding(
                use.name,
                f"{use.support.value} in {use.library or 'any library'}, used by {path.name}",
                accepted=use.name in allowed,
            )
            for use, path in missing.items()
        ],
        coverage=coverage,
    )


def check_opcodes(
    files: Sequence[Path],
    *,
    coverage: Coverage,
    accepted: Iterable[str] = (),
    progress: Callable[[str], None],
) -> Verdict:
    """Look up the opcodes of every PTX module in `files`; only `accepted` ones may be missing.

    Raises StackError for a file that holds no PTX that can be read.
    """
    uses: Counter[str] = Counter()
    inside: defaultdict[str, set[str]] = defaultdict(set)
    found = list(modules(files))
    for number, module in enumerate(found, start=1):
        parsed = ptx.parse(module.text(), name=module.name)
        uses.update(parsed.opcodes)
        for opcode in covering.unknown_opcodes(coverage, parsed):
            inside[opcode].add(module.name)
        if number % 20 == 0:
            progress(f"opcodes: {number}/{len(found)} modules read")
    allowed = set(accepted)
    return _verdict(
        gate="opcodes",
        checked=len(uses),
        what="opcode",
        where=f"of those in {counted(len(found), 'module')}",
        allowed=allowed,
        findings=[
            Finding(
                opcode,
                f"{counted(uses[opcode], 'use')} in {counted(len(names), 'module')}, "
                f"such as {min(names)}",
                accepted=opcode in allowed,
            )
            for opcode, names in inside.items()
        ],
        coverage=coverage,
        modules=len(found),
    )


def _verdict(
    *,
    gate: str,
    checked: int,
    what: str,
    where: str,
    allowed: set[str],
    findings: list[Finding],
    coverage: Coverage,
    **facts: int,
) -> Verdict:
    missing = {found.subject for found in findings}
    refused = sorted(missing - allowed)
    needless = sorted(allowed - missing)
    summary = f"{checked - len(missing)} of {checked} {what}s are covered by ZLUDA"
    if needless:
        summary += f"; no longer to be accepted: {', '.join(needless)}"
    reason = None
    if refused:
        reason = f"ZLUDA lacks {counted(len(refused), what)} {where}: {', '.join(refused)}"
    return Verdict(
        gate=gate,
        checked=checked,
        summary=reason or summary,
        reason=reason,
        hint="Accept it by name in image.yml if the program can do without, or build without it.",
        findings=tuple(sorted(findings)),
        facts={
            "zluda_commit": coverage.zluda_commit,
            "missing": sorted(missing),
            "accepted": sorted(allowed),
            **facts,
        },
    )
