"""From raw samples to the numbers that are shown and compared."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from enum import Enum

from msgspec import Struct

from zluda_stack.bench.saved import Answer, Run, Wave

# Below, what a request costs beside its tokens is more than they do.
_LEAST_PROMPT_TOKENS = 256
# In seconds or tokens a second: what no clock and no server gives, as a damaged file may have it.
_LEAST, _MOST = 1e-9, 1e12


class Metric(str, Enum):
    """What is measured; the value is its name for people."""

    FIRST = "first token"
    PROMPT = "prompt"
    GENERATION = "generation"
    BETWEEN = "between tokens"
    TOGETHER = "all clients together"

    @property
    def unit(self) -> str:
        """The unit of its values."""
        return "s" if self in _TIMES else "tokens/s"

    @property
    def less_is_faster(self) -> bool:
        """True for times, False for rates."""
        return self in _TIMES


_TIMES = frozenset({Metric.FIRST, Metric.BETWEEN})


class What(Struct, frozen=True, order=True, kw_only=True):
    """One number of a target: a metric of a prompt at so many clients at once."""

    prompt: str
    clients: int
    metric: Metric

    def __str__(self) -> str:
        many = "" if self.clients == 1 else f", {self.clients} clients"
        return f"{self.prompt}{many}: {self.metric.value}"


class Value(Struct, frozen=True, kw_only=True):
    """A number that one visit gave."""

    round: int
    visit: int
    number: float


Series = dict[What, list[Value]]


def series(waves: Iterable[Wave], target: str) -> Series:
    """The values of `target` by what they are of, in the order of visits."""
    visits: dict[tuple[What, int, int], list[float]] = defaultdict(list)
    for wave in waves:
        if wave.target == target:
            for what, number in of_wave(wave).items():
                visits[what, wave.round, wave.visit].append(number)
    found: Series = defaultdict(list)
    for (what, number, visit), values in visits.items():
        found[what].append(Value(round=number, visit=visit, number=statistics.median(values)))
    return dict(found)


def of_wave(wave: Wave) -> dict[What, float]:
    """The metrics of one wave, over its answers without a fault; none when there is none."""
    answers = [answer for answer in wave.answers if not answer.fault]
    found: dict[What, float] = {}
    for metric, rate in _OF_ANSWER.items():
        numbers = [number for number in map(rate, answers) if number is not None]
        if numbers:
            found[_what(wave, metric)] = statistics.median(numbers)
    # A wave that lost an answer did less than its clients asked for.
    if wave.clients > 1 and len(answers) == wave.clients and wave.seconds:
        tokens = sum(answer.tokens for answer in answers)
        found[_what(wave, Metric.TOGETHER)] = tokens / wave.seconds
    return {what: number for what, number in found.items() if _LEAST <= number <= _MOST}


def by_round(values: Iterable[Value]) -> dict[int, float]:
    """The logarithm of the value in each round, over the visits of it."""
    rounds: dict[int, list[float]] = defaultdict(list)
    for value in values:
        rounds[value.round].append(math.log(value.number))
    return {number: statistics.fmean(logs) for number, logs in sorted(rounds.items())}


def faults(run: Run, target: str) -> dict[str, int]:
    """How often `target` failed, by what it said; and of how many `asked` tells."""
    found: dict[str, int] = defaultdict(int)
    for answer in _answers(run, target):
        if answer.fault:
            found[answer.fault] += 1
    return dict(found)


def asked(run: Run, target: str) -> int:
    """How many requests `target` got."""
    return sum(1 for _ in _answers(run, target))


def _answers(run: Run, target: str) -> Iterable[Answer]:
    return (answer for wave in run.waves if wave.target == target for answer in wave.answers)


def _what(wave: Wave, metric: Metric) -> What:
    return What(prompt=wave.prompt, clients=wave.clients, metric=metric)


def _prompt(answer: Answer) -> float | None:
    computed = answer.prompt_tokens - answer.cached_tokens
    return computed / answer.first if computed >= _LEAST_PROMPT_TOKENS and answer.first else None


def _generation(answer: Answer) -> float | None:
    took = answer.last - answer.first
    return (answer.tokens - 1) / took if answer.tokens > 1 and took > 0 else None


def _between(answer: Answer) -> float | None:
    return statistics.median(answer.gaps) if answer.gaps else None


_OF_ANSWER: dict[Metric, Callable[[Answer], float | None]] = {
    Metric.FIRST: lambda answer: answer.first,
    Metric.PROMPT: _prompt,
    Metric.GENERATION: _generation,
    Metric.BETWEEN: _between,
}
