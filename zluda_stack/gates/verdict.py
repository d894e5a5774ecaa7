"""What a gate found, as a table for people and as JSON for BUILD-INFO."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from zluda_stack.files import write_atomic


class Finding(Struct, frozen=True, order=True):
    """One thing that is not as it should be; `accepted` when the budget allows for it.

    `detail` says more of the subject than fits into a line of the table.
    """

    subject: str
    problem: str
    accepted: bool = False
    detail: str = ""


class Verdict(Struct, frozen=True, kw_only=True):
    """What one gate says: `reason` is None when it lets the build pass, else why it does not.

    `checked` counts what was looked at, `facts` are further numbers and names for BUILD-INFO.
    """

    gate: str
    checked: int
    summary: str
    reason: str | None
    hint: str = ""
    findings: tuple[Finding, ...] = ()
    facts: dict[str, str | int | list[str] | dict[str, int]] = {}


def text(verdict: Verdict) -> str:
    """The verdict for people: a table of what was found, and what was fine in one line."""
    passed = [] if verdict.reason else [f"{verdict.gate}: {verdict.summary}"]
    return "".join(f"{line}\n" for line in (*_table(verdict.findings), *passed))


def write_json(verdict: Verdict, path: Path) -> None:
    """Write the verdict to `path`; what passed needs no hint. Raises HostProblem when it cannot."""
    passed = verdict.reason is None
    plain = {"passed": passed, **msgspec.to_builtins(verdict)}
    if passed:
        del plain["hint"]
    raw = msgspec.json.encode(plain, order="sorted")
    write_atomic(path, msgspec.json.format(raw, indent=2) + b"\n")


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """`number` with the noun in its right form: "1 library", "2 libraries"."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def _table(findings: Sequence[Finding]) -> Iterable[str]:
    width = max((len(found.subject) for found in findings), default=0)
    for found in findings:
        accepted = " (accepted)" if found.accepted else ""
        yield f"  {found.subject:<{width}}  {found.problem}{accepted}"
        if found.detail:
            yield f"      {found.detail}"
