"""Whether two targets differ: a permutation test over all metrics together, and its interval.

One round of a bench gives one number a metric, the logarithm of the value, so that effects are
ratios. In one go both targets are visited in each round, twice, in an order that chance decides
(`zluda_stack.bench.schedule`). If they do not differ, exchanging their names in a round changes
nothing but the sign of that round's difference, whatever the noise is like: drift, bursts and
dependence in time are the same for both. So all 2^n patterns of signs are as likely, and the share
of them in which the statistic is as large as it was is an exact p-value (R. A. Fisher, The Design
of Experiments, 1935, section 21: the sign-flip test).

Several metrics are judged by the largest statistic of them all, for the same patterns (P. H.
Westfall and S. S. Young, Resampling-Based Multiple Testing, 1993: single-step maxT). That keeps
the chance of even one false alarm under `ALPHA` as Holm's method does; and where metrics go
together, as these do, it is stronger: with eight rounds the smallest p-value is 1/128, which
Holm's correction of eight metrics would lift above 0.05.

The statistic is a mean with its largest members cut (P. J. Huber, Robust Estimation of a Location
Parameter, 1964), by the root of their squares: a single stalled round decides nothing. All of it is
exact enumeration of small sets, so it needs neither numpy nor scipy.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from operator import mul

from msgspec import Struct

ALPHA = 0.05
# With fewer the smallest p-value there can be is above ALPHA: 2/2^5.
LEAST_ROUNDS = 6

_MOST_PATTERNS = 1500
_CUT = 2.5
_BISECTIONS = 12
_WIDEST = 8.0  # a ratio of e^8
_RESAMPLES = 1000


class Design(Struct, frozen=True):
    """How labels can be exchanged when there is no difference.

    `patterns` holds weights of the numbers of a row, first those of how it was; `acts` is 1 where
    an effect adds to a number, else 0. With `centred` only differences within a row count.
    """

    patterns: tuple[tuple[float, ...], ...]
    acts: tuple[int, ...]
    centred: bool


class Effect(Struct, frozen=True, kw_only=True):
    """What a row says: the effect, its interval (all intervals of a family together hold with a
    chance of 1 - alpha), as logarithms of ratios, and the p-value in the family."""

    size: float
    low: float
    high: float
    p: float


class Spread(Struct, frozen=True, kw_only=True):
    """The median of numbers, their quartiles, and a 95 % bootstrap interval of the median."""

    median: float
    lower: float
    upper: float
    low: float
    high: float


def paired(rounds: int, seed: int = 0) -> Design:
    """For differences of two targets that were visited in the same rounds."""
    # A pattern and its opposite have the same statistic, so half of them are all.
    if 2 ** (rounds - 1) <= _MOST_PATTERNS:
        patterns = tuple((1.0, *signs) for signs in product((1.0, -1.0), repeat=rounds - 1))
    else:
        chance = random.Random(seed)  # noqa: S311 -- a sample, not a secret
        others = (
            tuple(chance.choice((1.0, -1.0)) for _ in range(rounds)) for _ in range(_MOST_PATTERNS)
        )
        patterns = ((1.0,) * rounds, *others)
    return Design(patterns, (1,) * rounds, centred=False)


def unpaired(first: int, second: int, seed: int = 0) -> Design:
    """For the rounds of one target, and then those of another that were measured without it."""
    every = first + second
    if math.comb(every, second) <= _MOST_PATTERNS:
        chosen: Iterator[Sequence[int]] = combinations(range(every - 1, -1, -1), second)
    else:
        chance = random.Random(seed)  # noqa: S311 -- a sample, not a secret
        as_it_was = range(first, every)
        others = (chance.sample(range(every), second) for _ in range(_MOST_PATTERNS))
        chosen = iter([as_it_was, *others])
    patterns = tuple(
        tuple(1 / second if place in second_ones else -1 / first for place in range(every))
        for second_ones in map(frozenset, chosen)
    )
    return Design(patterns, (0,) * first + (1,) * second, centred=True)


def effects(
    rows: Mapping[str, Sequence[float]], design: Design, alpha: float = ALPHA
) -> dict[str, Effect]:
    """The effect in each row, judged as one family: a false alarm in any has a chance of alpha."""
    p = p_values(rows, design)
    sizes = {name: _location(row, design) for name, row in rows.items()}
    # What is left of each row without its own effect says how far chance alone goes.
    noise = {name: _statistics(row, sizes[name], design) for name, row in rows.items()}
    found = {}
    for name, row in rows.items():
        others = [values for other, values in noise.items() if other != name]
        largest = [max(column) for column in zip(*others, strict=True)] if others else []
        low, high = _interval(row, sizes[name], largest, design, alpha)
        if p[name] >= alpha:  # an interval leaves nothing out that the exact test does not
            low, high = min(low, 0.0), max(high, 0.0)
        found[name] = Effect(size=sizes[name], low=low, high=high, p=p[name])
    return found


def p_values(rows: Mapping[str, Sequence[float]], design: Design) -> dict[str, float]:
    """The p-value of each row in the family of all."""
    family = {name: _statistics(row, 0.0, design) for name, row in rows.items()}
    largest = [max(column) for column in zip(*family.values(), strict=True)]
    return {name: _share(values, largest) for name, values in family.items()}


def spread(numbers: Sequence[float], seed: int = 0) -> Spread:
    """How numbers lie. Raises statistics.StatisticsError for none."""
    middle = statistics.median(numbers)
    if len(numbers) == 1:
        return Spread(median=middle, lower=middle, upper=middle, low=middle, high=middle)
    lower, _, upper = statistics.quantiles(numbers, n=4, method="inclusive")
    chance = random.Random(seed)  # noqa: S311 -- a sample, not a secret
    again = sorted(
        statistics.median(chance.choices(numbers, k=len(numbers))) for _ in range(_RESAMPLES)
    )
    low, high = again[round(0.025 * _RESAMPLES)], again[round(0.975 * _RESAMPLES) - 1]
    return Spread(median=middle, lower=lower, upper=upper, low=low, high=high)


def rounds_needed(rounds: int, effect: Effect, margin: float) -> int:
    """About how many rounds tell of `effect` that it is there, or within a ratio of 1 + `margin`.

    The interval narrows with the root of their number, and its middle may stay where it is.
    """
    half = (effect.high - effect.low) / 2
    if not math.isfinite(half):
        return max(LEAST_ROUNDS, 2 * rounds)
    size = abs(effect.size)
    wanted = max(math.log1p(margin) - size, size)
    return max(rounds + 1, LEAST_ROUNDS, math.ceil(rounds * (half / wanted) ** 2))


def _statistics(row: Sequence[float], effect: float, design: Design) -> list[float]:
    """The statistic of `row` without `effect`, for each pattern."""
    unit = _unit([x - effect * acts for x, acts in zip(row, design.acts, strict=True)], design)
    return [abs(sum(map(mul, pattern, unit))) for pattern in design.patterns]


def _unit(numbers: list[float], design: Design) -> list[float]:
    """`numbers` with the largest cut, and of length 1."""
    if design.centred:
        middle = statistics.median(numbers)
        numbers = [number - middle for number in numbers]
    numbers = _cut(numbers)
    length = math.sqrt(sum(number * number for number in numbers))
    return [number / length for number in numbers] if length else numbers


def _cut(numbers: Sequence[float]) -> list[float]:
    # The bound does not depend on signs, so what is cut is the same for each pattern.
    most = _CUT * statistics.median(map(abs, numbers))
    return [max(-most, min(most, number)) for number in numbers] if most else list(numbers)


def _location(row: Sequence[float], design: Design) -> float:
    """The effect in `row`."""
    if not design.centred:
        return _middle(row)
    first = [x for x, acts in zip(row, design.acts, strict=True) if not acts]
    second = [x for x, acts in zip(row, design.acts, strict=True) if acts]
    return _middle(second) - _middle(first)


def _middle(numbers: Sequence[float]) -> float:
    median = statistics.median(numbers)
    return median + statistics.fmean(_cut([number - median for number in numbers]))


def _share(values: Sequence[float], others: Sequence[float]) -> float:
    """The share of patterns in which the largest statistic is as large as `values` was."""
    least = values[0] * (1 - 1e-9)
    largest = map(max, values, others) if others else values
    return sum(value >= least for value in largest) / len(values)


def _interval(
    row: Sequence[float], size: float, others: Sequence[float], design: Design, alpha: float
) -> tuple[float, float]:
    """The effects that the row does not contradict: the least and the most."""

    def contradicts(effect: float) -> bool:
        return _share(_statistics(row, effect, design), others) < alpha

    return _bound(size, -1, contradicts), _bound(size, 1, contradicts)


def _bound(size: float, way: int, contradicts: Callable[[float], bool]) -> float:
    """The last effect from `size` upwards (1) or downwards (-1) that is not contradicted."""
    near, far = 0.0, 1e-4
    while not contradicts(size + way * far):
        near, far = far, 2 * far
        if far > _WIDEST:
            return way * math.inf
    for _ in range(_BISECTIONS):
        between = (near + far) / 2
        near, far = (near, between) if contradicts(size + way * between) else (between, far)
    return size + way * far
