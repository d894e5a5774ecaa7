"""Whether the statistics keep their word: simulated benches of which the truth is known."""

from __future__ import annotations

import json
import math
import random
import statistics as plain
from pathlib import Path

import pytest

from tests.unit.bench_runs import seeded
from zluda_stack.bench import statistics
from zluda_stack.bench.statistics import ALPHA

_METRICS = 6
_ROUNDS = 8  # half of what `bench` does by default: all patterns are quick to enumerate


def _tails() -> list[float]:
    """Numbers with tails as heavy as those of Student's t with three degrees of freedom."""
    chance = seeded(0)
    return [
        chance.gauss(0, 1) / math.sqrt(sum(chance.gauss(0, 1) ** 2 for _ in range(3)) / 3)
        for _ in range(5000)
    ]


_TAILS = _tails()
_RECORD: dict[str, list[float]] = json.loads(
    (Path(__file__).parents[1] / "data" / "bench-noise.json").read_text()
)["rows"]


def visits(chance: random.Random, slower: float, moments: tuple[float, float]) -> float:
    """The mean of a target's two visits in a round, as logarithms of its speed."""
    return plain.fmean(-math.log(slower) - _noise(chance, moment) for moment in moments)


def _noise(chance: random.Random, moment: float) -> float:
    """A machine that slows down by 20 % in waves, and stalls at times."""
    return 0.2 * moment + 0.05 * math.sin(9 * moment) + 0.03 * chance.choice(_TAILS)


def pairs(
    chance: random.Random, slower: float = 1.0, rounds: int = _ROUNDS
) -> dict[str, list[float]]:
    """Differences by round in six metrics of two targets; the second takes `slower` as long."""
    rows: dict[str, list[float]] = {str(number): [] for number in range(_METRICS)}
    for number in range(rounds):
        begin = number / rounds
        outer, inner = (begin, begin + 3 / 4 / rounds), (begin + 1 / 4 / rounds,) * 2
        first_is_outer = chance.random() < 0.5
        first, second = (outer, inner) if first_is_outer else (inner, outer)
        for row in rows.values():
            row.append(visits(chance, slower, second) - visits(chance, 1.0, first))
    return rows


def test_of_two_thousand_pairs_that_are_alike_under_five_percent_differ_in_any_metric() -> None:
    chance = seeded(20261201)
    design = statistics.paired(_ROUNDS)
    alarms = sum(
        min(statistics.p_values(pairs(chance), design).values()) < ALPHA for _ in range(2000)
    )
    assert alarms < ALPHA * 2000


def test_half_the_default_rounds_see_ten_percent_more_time_in_four_of_five_benches() -> None:
    chance = seeded(7)
    design = statistics.paired(_ROUNDS)
    seen = 0
    for _ in range(200):
        p = statistics.p_values(pairs(chance, slower=1.1), design)
        seen += sum(value < ALPHA for value in p.values())
    assert seen / (200 * _METRICS) >= 0.8


def test_patterns_that_are_sampled_keep_the_same_word_and_see_more() -> None:
    chance = seeded(13)
    design = statistics.paired(16)
    alarms = seen = 0
    for _ in range(100):
        alarms += min(statistics.p_values(pairs(chance, rounds=16), design).values()) < ALPHA
    for _ in range(20):
        p = statistics.p_values(pairs(chance, slower=1.1, rounds=16), design)
        seen += sum(value < ALPHA for value in p.values())
    assert alarms <= 9  # 5 are expected; more than 9 come by chance in one of 40 tries
    assert seen / (20 * _METRICS) > 0.95


def recorded(chance: random.Random, slower: float, share: float = 1.0) -> dict[str, list[float]]:
    """Eight rounds that begin anywhere in what a loaded machine really did, or in a `share` of it.

    The next request is the next of the record.
    """
    begin = chance.randrange(10**6)
    orders = [chance.choice((1, -1)) for _ in range(_ROUNDS)]
    rows = {}
    for name, noise in _RECORD.items():
        row = []
        for number, order in enumerate(orders):
            four = [share * noise[(begin + 4 * number + n) % len(noise)] for n in range(4)]
            outer, inner = (four[0] + four[3]) / 2, (four[1] + four[2]) / 2
            row.append(order * (inner - outer) - math.log(slower))
        rows[name] = row
    return rows


def test_the_noise_of_a_real_loaded_machine_raises_no_more_alarms_than_chance() -> None:
    chance = seeded(17)
    design = statistics.paired(_ROUNDS)
    alarms = sum(
        min(statistics.p_values(recorded(chance, 1.0), design).values()) < ALPHA
        for _ in range(4000)
    )
    assert alarms < ALPHA * 4000


def test_ten_percent_are_seen_in_a_tenth_of_that_noise_and_not_in_all_of_it() -> None:
    chance = seeded(19)
    design = statistics.paired(_ROUNDS)

    def seen(share: float) -> float:
        found = [
            value < ALPHA
            for _ in range(60)
            for value in statistics.p_values(recorded(chance, 1.1, share), design).values()
        ]
        return sum(found) / len(found)

    assert seen(0.1) > 0.8
    assert seen(1.0) < 0.5


def test_the_intervals_of_all_metrics_hold_the_truth_together() -> None:
    chance = seeded(3)
    design = statistics.paired(_ROUNDS)
    missed = 0
    for _ in range(60):
        found = statistics.effects(pairs(chance, slower=1.1), design)
        missed += not all(one.low <= -math.log(1.1) <= one.high for one in found.values())
    assert missed <= 7  # 3 are expected; more than 7 come by chance in one of 70 tries


def test_an_interval_leaves_no_difference_out_only_when_the_exact_test_does() -> None:
    chance = seeded(11)
    for slower in (1.0, 1.02, 1.05, 1.1):
        for effect in statistics.effects(pairs(chance, slower), statistics.paired(8)).values():
            assert effect.p < ALPHA or effect.low <= 0 <= effect.high


def test_one_stalled_round_decides_nothing() -> None:
    calm = [0.010, -0.012, 0.003, -0.004, 0.008, -0.009, 0.002, -0.001]
    stalled = [*calm[:-1], 3.0]
    effect = statistics.effects({"a": stalled}, statistics.paired(8))["a"]
    assert effect.p > ALPHA
    assert abs(effect.size) < 0.02


def test_five_rounds_can_tell_nothing_and_say_so() -> None:
    effect = statistics.effects({"a": [-0.1] * 5}, statistics.paired(5))["a"]
    assert (effect.low, effect.high) == (-math.inf, math.inf)
    assert statistics.rounds_needed(5, effect, 0.1) >= statistics.LEAST_ROUNDS


def test_six_rounds_that_agree_can() -> None:
    row = [-0.10, -0.11, -0.09, -0.10, -0.12, -0.1]
    effect = statistics.effects({"a": row}, statistics.paired(6))["a"]
    assert effect.p == 2 / 2**6
    assert effect.low < -0.1 < effect.high < 0


def test_what_never_varies_is_no_difference_and_no_error() -> None:
    effect = statistics.effects({"a": [0.0] * 8}, statistics.paired(8))["a"]
    assert effect.p == 1
    assert effect.low == pytest.approx(0, abs=1e-3)
    assert effect.high == pytest.approx(0, abs=1e-3)


def test_many_rounds_are_sampled_and_not_enumerated() -> None:
    chance = seeded(1)
    design = statistics.paired(40)
    assert len(design.patterns) < 5000
    row = [-0.05 + chance.gauss(0, 0.05) for _ in range(40)]
    assert statistics.effects({"a": row}, design)["a"].p < 0.01


def test_rounds_of_two_benches_are_told_apart_without_pairs() -> None:
    chance = seeded(5)
    design = statistics.unpaired(8, 8)
    alarms = 0
    for _ in range(40):
        rows = {str(n): [chance.gauss(0, 0.03) for _ in range(16)] for n in range(3)}
        alarms += min(statistics.p_values(rows, design).values()) < ALPHA
    assert alarms <= 4
    rows = {"a": [chance.gauss(-0.1 * (n >= 8), 0.03) for n in range(16)]}
    found = statistics.effects(rows, design)["a"]
    assert found.low < -0.1 < found.high < 0


def test_of_few_rounds_without_pairs_every_split_is_looked_at() -> None:
    design = statistics.unpaired(3, 4)
    assert len(design.patterns) == math.comb(7, 4)
    assert design.patterns[0] == (-1 / 3,) * 3 + (1 / 4,) * 4


def test_more_rounds_are_asked_for_as_the_square_of_what_an_interval_is_too_wide() -> None:
    effect = statistics.Effect(size=0, low=-math.log(1.21), high=math.log(1.21), p=1)
    assert statistics.rounds_needed(8, effect, 0.1) == 32


@pytest.mark.parametrize(("size", "rounds"), [(0.02, 30), (-0.02, 30), (0.09, 24), (0.05, 72)])
def test_an_effect_near_half_the_margin_takes_the_most_rounds_to_tell(
    size: float, rounds: int
) -> None:
    effect = statistics.Effect(size=size, low=size - 0.085, high=size + 0.085, p=1)
    assert statistics.rounds_needed(24, effect, 0.1) == pytest.approx(rounds, abs=4)


def test_a_spread_has_quartiles_and_an_interval_of_the_median() -> None:
    told = statistics.spread([float(n) for n in range(1, 102)])
    assert (told.median, told.lower, told.upper) == (51, 26, 76)
    assert 35 < told.low < 51 < told.high < 67


def test_the_spread_of_one_number_is_that_number() -> None:
    told = statistics.spread([2.0])
    assert {told.median, told.lower, told.upper, told.low, told.high} == {2.0}
