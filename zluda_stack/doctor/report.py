"""The report for people: one line a layer, and what is not right in full."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from msgspec import Struct

from zluda_stack.doctor.types import Finding, Layer, Status

_WORST_FIRST = (Status.FAIL, Status.WARN, Status.OK, Status.SKIPPED)


class LayerLine(Struct, frozen=True, kw_only=True):
    """One layer: its worst status, and what is to be said of it in one line."""

    layer: Layer
    status: Status
    text: str


def layer_lines(findings: Sequence[Finding]) -> tuple[LayerLine, ...]:
    """A line for each layer, in their order."""
    failed = {each.id for each in findings if each.status is Status.FAIL}
    return tuple(_line(layer, [f for f in findings if f.layer is layer], failed) for layer in Layer)


def worst(findings: Iterable[Finding]) -> Status:
    """The worst status among `findings`; SKIPPED when there are none."""
    found = {each.status for each in findings}
    return next((status for status in _WORST_FIRST if status in found), Status.SKIPPED)


def _line(layer: Layer, findings: Sequence[Finding], failed: Set[str]) -> LayerLine:
    status = worst(findings)
    if status in (Status.FAIL, Status.WARN):
        text = ", ".join(each.id for each in findings if each.status is status)
    elif status is Status.OK:
        text = "; ".join(each.evidence for each in findings if each.evidence)
    else:
        text = next((_why_skipped(each, failed) for each in findings), "")
    return LayerLine(layer=layer, status=status, text=text)


def _why_skipped(finding: Finding, failed: Set[str]) -> str:
    return f"because {finding.because}" if finding.because in failed else finding.reason


def details(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What is told in full: the failures, then the warnings."""
    found = tuple(findings)
    return tuple(each for status in _WORST_FIRST[:2] for each in found if each.status is status)
