"""A bench and a comparison as rows of text."""

from __future__ import annotations

import statistics as plain
from collections.abc import Sequence

from zluda_stack.bench import metrics, statistics
from zluda_stack.bench.compare import Compared, Comparison
from zluda_stack.bench.metrics import Metric, What
from zluda_stack.bench.saved import Run
from zluda_stack.units import gibibytes

Rows = list[tuple[str, ...]]

COLUMNS = ("prompt", "clients", "what", "target", "median", "quartiles", "95 % of the median")
TAKEN_COLUMNS = ("target", "model server's memory", "cards' memory", "power", "requests", "errors")
COMPARED_COLUMNS = ("prompt", "clients", "what", "verdict")

BUSY_CLIENT = 0.5


def rows(run: Run) -> Rows:
    """A row for each number of each target, those to compare next to each other."""
    found = []
    for place, target in enumerate(run.names):
        for what, values in metrics.series(run.waves, target).items():
            told = statistics.spread([value.number for value in values])
            cells = (
                number(what.metric, told.median),
                _range(what.metric, told.lower, told.upper),
                _range(what.metric, told.low, told.high, unit=True),
            )
            found.append((_place(run, what), place, _named(what, target) + cells))
    return [row for *_, row in sorted(found, key=lambda one: one[:2])]


def taken(run: Run) -> Rows:
    """What each target took, and how many of its requests failed."""
    return [
        (
            target,
            _bytes([one.memory for one in run.watched if one.target == target]),
            _bytes([one.card_memory for one in run.watched if one.target == target]),
            _watts([watts for one in run.watched if one.target == target for watts in one.watts]),
            str(metrics.asked(run, target)),
            str(sum(metrics.faults(run, target).values())),
        )
        for target in run.names
    ]


def notes(run: Run) -> list[str]:
    """What a reader must know beside the numbers, a sentence each."""
    found = [
        f"{one.target}{f', {one.prompt}' if one.prompt else ''}: not measured: {one.reason}"
        for one in run.not_measured
    ]
    if any(one.rocprof for one in run.targets):
        found.append(
            "measured under rocprofv3, which takes time itself: without it the numbers are others"
        )
    for target in run.names:
        for fault, times in metrics.faults(run, target).items():
            found.append(f"{target}: {times} of {metrics.asked(run, target)} failed: {fault}")
    if run.client_cpu > BUSY_CLIENT:
        found.append(
            f"this client itself took {run.client_cpu:.0%} of a core: what it measured may be its "
            "own speed; run it on another machine, or with fewer --clients"
        )
    return found


def compared(comparison: Comparison) -> Rows:
    """A row for each metric with its verdict."""
    return [
        (one.what.prompt, str(one.what.clients), one.what.metric.value, verdict(comparison, one))
        for one in comparison.metrics
    ]


def verdict(comparison: Comparison, one: Compared) -> str:
    """What a comparison says of one metric, such as `a is 9.1 % faster (7.9 to 10.4 %)`."""
    first, second = comparison.first, comparison.second
    if one.verdict == "no difference":
        return f"no difference{_bounds(second, one)}"
    if one.verdict == "cannot tell":
        return (
            f"cannot tell{_bounds(second, one)}: needs about {one.rounds} rounds, and had "
            f"{comparison.rounds}"
        )
    winner, by = (second, one) if one.faster > 0 else (first, _reversed(one))
    told = f"{winner} is {_percent(by.faster)} faster ({_percents(by.low, by.high)})"
    return told if one.verdict != "errors" else f"no winner: {told}, and it had errors"


def number(metric: Metric, value: float) -> str:
    """`value` as people read it, with its unit."""
    if metric.unit == "s":
        return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"
    return f"{value:.1f} tokens/s"


def _place(run: Run, what: What) -> tuple[int, int, int]:
    return list(run.prompts).index(what.prompt), what.clients, list(Metric).index(what.metric)


def _named(what: What, target: str) -> tuple[str, ...]:
    return what.prompt, str(what.clients), what.metric.value, target


def _range(metric: Metric, low: float, high: float, *, unit: bool = False) -> str:
    first, second = number(metric, low), number(metric, high)
    bare = first.partition(" ")[0] if first.partition(" ")[2] == second.partition(" ")[2] else first
    return f"{bare} to {second if unit or bare == first else second.partition(' ')[0]}"


def _bytes(found: Sequence[int | None]) -> str:
    known = [one for one in found if one is not None]
    return gibibytes(max(known)) if known else "-"


def _watts(found: Sequence[float]) -> str:
    return f"{plain.median(found):.0f} W" if found else "-"


def _reversed(one: Compared) -> Compared:
    """The same, with the first as the one that is faster."""

    def turned(ratio: float | None) -> float | None:
        return None if ratio is None else 1 / (1 + ratio) - 1

    faster = 1 / (1 + one.faster) - 1
    return Compared(
        what=one.what,
        first=one.first,
        second=one.second,
        faster=faster,
        low=turned(one.high),
        high=turned(one.low),
        p=one.p,
        verdict=one.verdict,
    )


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.1f} %"


def _percents(low: float | None, high: float | None) -> str:
    """The bounds of a winner's lead; that it has one is what `low` says."""
    if low is None or high is None:
        return f"at least {_percent(low or 0.0)}"
    return f"{low * 100:.1f} to {_percent(high)}"


def _bounds(second: str, one: Compared) -> str:
    """How much faster it may be; nothing where the rounds are too few to bound it."""
    if one.low is None:
        return "" if one.high is None else f" ({second} is at most {_signed(one.high)} faster)"
    if one.high is None:
        return f" ({second} is at least {_signed(one.low)} faster)"
    return f" ({second} is {_signed(one.low)} to {_signed(one.high)} faster)"


def _signed(ratio: float) -> str:
    return f"{ratio * 100:+.1f} %"
