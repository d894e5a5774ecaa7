"""When a bench has asked enough to tell whether its targets differ.

It may go on for a clearer answer without raising more false alarms, as long as what decides that
knows nothing of who is faster. Here that is how far the two visits of a target in one round are
apart. Exchanging the names of two targets within a round leaves it as it is, so among the patterns
of signs that are tested (`zluda_stack.bench.statistics`) none is more likely for it, and the
p-values stay exact. To stop when a difference shows up would raise alarms: in the end one does.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from zluda_stack.bench import metrics
from zluda_stack.bench.metrics import Value
from zluda_stack.bench.saved import Wave

# The interval reaches about 2.4 of its standard errors to each side (27 of them, measured on
# 2026-12-01: docs/bench.md), and its middle is within 2 of the truth nearly always.
_ERRORS = 4.4


def is_enough(waves: Sequence[Wave], targets: Sequence[str], margin: float) -> bool:
    """True when targets that are alike would be told to be, within a ratio of 1 + `margin`.

    A single one of `targets` is compared with nothing.
    """
    theirs = [metrics.series(waves, target) for target in targets]
    kinds = {what for series in theirs for what in series}
    rows = ([series[what] for series in theirs if what in series] for what in kinds)
    return all(_error(row) * _ERRORS <= math.log1p(margin) for row in rows if len(row) > 1)


def _error(row: Sequence[Sequence[Value]]) -> float:
    """The most that the standard error of the difference of two targets can be, in one metric.

    It is of the logarithms, and infinite where no round has two visits of all. That of two targets
    leaves out the others; this sum over all is the same whichever two exchange their names.
    """
    apart = [_apart(values) for values in row]
    rounds = set.intersection(*map(set, apart))
    # The variance of a mean of two visits is a quarter of the square of their difference.
    variance = sum(one[number] ** 2 / 4 for one in apart for number in rounds)
    return math.sqrt(variance) / len(rounds) if rounds else math.inf


def _apart(values: Sequence[Value]) -> dict[int, float]:
    """How far the two visits of each round are apart, as a logarithm."""
    rounds: dict[int, list[float]] = defaultdict(list)
    for value in values:
        rounds[value.round].append(math.log(value.number))
    return {number: logs[1] - logs[0] for number, logs in rounds.items() if len(logs) == 2}
