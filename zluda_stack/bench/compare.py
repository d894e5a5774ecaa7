"""Whether what was measured of two targets differs, in words that say how sure that is."""

from __future__ import annotations

import math
import statistics as plain
from typing import Literal

from msgspec import Struct, structs

from zluda_stack.bench import metrics, statistics
from zluda_stack.bench.metrics import Series, What
from zluda_stack.bench.saved import Run, TargetFacts
from zluda_stack.errors import UsageError

MARGIN = 0.1
# Of the margin: what is surely less says nothing of two targets. Two processes of one program, too,
# can differ by some per cent for as long as they live, by where their memory lies (T. Mytkowicz et
# al., Producing Wrong Data Without Doing Anything Obviously Wrong, 2009; docs/bench.md has one).
_NEGLIGIBLE = 0.5
# The name by which each server of this program knows its model.
_ANY_MODEL = "default"
_APART = (
    "They were measured at different times: a change of the machine between them, such as other "
    "load or heat, looks like a difference. Measure both in one go to be sure."
)

Verdict = Literal["no difference", "faster", "slower", "cannot tell", "errors"]


class Side(Struct, frozen=True, kw_only=True):
    """One of the two: a target of a saved bench. `label` is what it is called beside the other."""

    label: str
    run: Run
    target: str

    @property
    def facts(self) -> TargetFacts:
        """What was measured."""
        return next(one for one in self.run.targets if one.name == self.target)


class Compared(Struct, frozen=True, kw_only=True):
    """One metric of both: medians, and how much faster the second is as a ratio less 1.

    `low` and `high` bound that with a confidence of 95 % for all metrics together; None is
    without a bound. `p` is the p-value among all metrics. `rounds` is about how many it takes
    where the verdict is "cannot tell".
    """

    what: What
    first: float
    second: float
    faster: float
    low: float | None
    high: float | None
    p: float
    verdict: Verdict
    rounds: int | None = None


class Comparison(Struct, frozen=True, kw_only=True):
    """Two targets beside each other. `paired` is True when they were measured in one go.

    `notes` say what is to be kept in mind.
    """

    first: str
    second: str
    paired: bool
    rounds: int
    margin: float
    metrics: tuple[Compared, ...]
    notes: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """True when any metric differs beyond chance."""
        return any(one.verdict in ("faster", "slower") for one in self.metrics)


def compare(
    first: Side, second: Side, margin: float = MARGIN, *, comparisons: int = 1
) -> Comparison:
    """The two sides beside each other; they count as alike within a ratio of 1 + `margin`.

    Within half of that they do also where a difference is seen.

    Of several `comparisons` that are made of one bench each gets a part of the chance of a false
    alarm. Raises UsageError when nothing was measured of both, or both are one.
    """
    alpha = statistics.ALPHA / comparisons
    together = first.run == second.run
    if together and first.target == second.target:
        raise UsageError(
            f"{first.label} and {second.label} are the same target of the same bench",
            "Give two benches, or two targets of one: FILE#TARGET.",
        )
    theirs = (
        metrics.series(first.run.waves, first.target),
        metrics.series(second.run.waves, second.target),
    )
    shared = sorted(set(theirs[0]) & set(theirs[1]))
    if not shared:
        raise UsageError(
            f"{first.label} and {second.label} have no prompt and number of clients in common",
            "Measure both with the same --prompt and --clients.",
        )
    rows = {what: _row(theirs, what) for what in shared}
    usable = _usable(rows, paired=together)
    judged = _judge(usable, alpha, paired=together)
    allowances = {what: 0.0 if together else _drift(row) for what, row in usable.items()}
    told = tuple(
        _compared(what, theirs, rows[what].rounds, _widened(judged.get(what), allowance), margin)
        for what, allowance in ((what, allowances.get(what, 0.0)) for what in shared)
    )
    return Comparison(
        first=first.label,
        second=second.label,
        paired=together,
        rounds=min(row.rounds for row in rows.values()),
        margin=margin,
        metrics=tuple(_without_errors(one, first, second) for one in told),
        notes=_notes(first, second, together=together),
    )


class _Row(Struct, frozen=True):
    """A metric's speeds (logarithms; more is faster) by round, those of both sides."""

    first: dict[int, float]
    second: dict[int, float]

    @property
    def rounds(self) -> int:
        """How many rounds the side with fewer has."""
        return min(len(self.first), len(self.second))

    def numbers(self, *, paired: bool) -> tuple[float, ...]:
        """The differences by round, or the speeds of one side and then of the other."""
        if paired:
            return tuple(self.second[number] - log for number, log in self.first.items())
        return (*self.first.values(), *self.second.values())

    def within(self, first: set[int], second: set[int]) -> _Row:
        """The row with these rounds only."""
        return _Row(
            {number: log for number, log in self.first.items() if number in first},
            {number: log for number, log in self.second.items() if number in second},
        )


def _row(theirs: tuple[Series, Series], what: What) -> _Row:
    sign = -1 if what.metric.less_is_faster else 1
    first, second = (
        {number: sign * log for number, log in metrics.by_round(one[what]).items()}
        for one in theirs
    )
    return _Row(first, second)


def _usable(rows: dict[What, _Row], *, paired: bool) -> dict[What, _Row]:
    """The rows with enough rounds, each with the rounds that all of them have: one family."""
    long = {what: row for what, row in rows.items() if row.rounds >= statistics.LEAST_ROUNDS}
    if not long:
        return {}
    first = set.intersection(*(set(row.first) for row in long.values()))
    second = set.intersection(*(set(row.second) for row in long.values()))
    if paired:
        first = second = first & second
    cut = {what: row.within(first, second) for what, row in long.items()}
    return {what: row for what, row in cut.items() if row.rounds >= statistics.LEAST_ROUNDS}


def _judge(rows: dict[What, _Row], alpha: float, *, paired: bool) -> dict[What, statistics.Effect]:
    """The effects in `rows`, which have the same rounds."""
    if not rows:
        return {}
    row = next(iter(rows.values()))
    shape = len(row.first), len(row.second)
    design = statistics.paired(shape[0]) if paired else statistics.unpaired(*shape)
    by_name = {str(what): row.numbers(paired=paired) for what, row in rows.items()}
    effects = statistics.effects(by_name, design, alpha)
    return {what: effects[str(what)] for what in rows}


def _drift(row: _Row) -> float:
    """How far each bench moved within itself, from its first half to its second.

    What moved as much between the two is no difference of theirs.
    """
    return math.hypot(*(_moved(list(one.values())) for one in (row.first, row.second)))


def _moved(logs: list[float]) -> float:
    half = len(logs) // 2
    return plain.median(logs[-half:]) - plain.median(logs[:half])


def _widened(effect: statistics.Effect | None, allowance: float) -> statistics.Effect | None:
    if effect is None:
        return None
    low, high = effect.low - allowance, effect.high + allowance
    return structs.replace(effect, low=low, high=high)


def _compared(
    what: What,
    theirs: tuple[Series, Series],
    rounds: int,
    effect: statistics.Effect | None,
    margin: float,
) -> Compared:
    first, second = (plain.median(value.number for value in one[what]) for one in theirs)
    if effect is None:  # too few rounds to judge
        ratio = first / second if what.metric.less_is_faster else second / first
        effect = statistics.Effect(size=math.log(ratio), low=-math.inf, high=math.inf, p=1.0)
    verdict = _verdict(effect, margin)
    needed = statistics.rounds_needed(rounds, effect, margin)
    return Compared(
        what=what,
        first=first,
        second=second,
        faster=math.expm1(effect.size),
        low=_ratio(effect.low),
        high=_ratio(effect.high),
        p=effect.p,
        verdict=verdict,
        rounds=needed if verdict == "cannot tell" else None,
    )


def _ratio(log: float) -> float | None:
    return math.expm1(log) if math.isfinite(log) else None


def _verdict(effect: statistics.Effect, margin: float) -> Verdict:
    is_seen = not effect.low <= 0 <= effect.high  # which is to say that the p-value is small
    most = math.log1p(margin * _NEGLIGIBLE if is_seen else margin)
    if -most <= effect.low and effect.high <= most:
        return "no difference"
    if not is_seen:
        return "cannot tell"
    return "faster" if effect.size > 0 else "slower"


def _without_errors(one: Compared, first: Side, second: Side) -> Compared:
    """A target with errors wins nothing: what failed did not take its time."""
    winner = {"faster": second, "slower": first}.get(one.verdict)
    if winner is None or not metrics.faults(winner.run, winner.target):
        return one
    return structs.replace(one, verdict="errors")


def _notes(first: Side, second: Side, *, together: bool) -> tuple[str, ...]:
    found = [] if together else [_APART]
    for side in (first, second):
        failed = sum(metrics.faults(side.run, side.target).values())
        if failed:
            of = metrics.asked(side.run, side.target)
            found.append(f"{failed} of {of} requests to {side.label} failed; they count nowhere.")
    one, other = first.facts, second.facts
    if _differ(one.model_sha256, other.model_sha256) or _differ(_model(one), _model(other)):
        found.append("They served different models: this compares models, too.")
    if first.run.prompts != second.run.prompts or first.run.cached != second.run.cached:
        found.append("They were asked different prompts: this compares prompts, too.")
    if first.run.machine != second.run.machine:
        found.append("They were measured from different machines.")
    if one.rocprof != other.rocprof:
        found.append("One of them ran under rocprofv3: this measures its cost, too.")
    return tuple(found)


def _model(facts: TargetFacts) -> str | None:
    """The model's name, unless it is a name for whatever is served."""
    return None if facts.model == _ANY_MODEL else facts.model


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other
