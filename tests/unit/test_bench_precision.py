"""More rounds where the numbers vary, and none for a difference that is to be found."""

from __future__ import annotations

import random
from functools import partial

import pytest
from msgspec import structs

from tests.unit import bench_runs
from tests.unit.fake_streams import FakeStreams, fake_streams
from zluda_stack.bench import compare, measure, precision, statistics
from zluda_stack.bench.compare import MARGIN, Side
from zluda_stack.bench.measure import Asked, Bench, Opened
from zluda_stack.bench.prompts import all_prompts
from zluda_stack.bench.saved import Run
from zluda_stack.bench.targets import RemoteTarget
from zluda_stack.errors import EngineFailure
from zluda_stack.progress import Progress, Silent

NAMES = ("a", "b")


def normal(chance: random.Random, _: float, *, size: float) -> float:
    return chance.gauss(0, size)


def bench(seed: int, size: float, slower: float = 1.0, *, least: int, most: int) -> Run:
    """A bench with noise of this size that goes on until it is enough."""
    whole = bench_runs.run(
        {"a": 1.0, "b": slower}, seed, rounds=most, noise=partial(normal, size=size)
    )
    for rounds in range(least, most + 1):
        waves = tuple(wave for wave in whole.waves if wave.round < rounds)
        if rounds == most or precision.is_enough(waves, NAMES, MARGIN):
            return bench_runs.shortened(whole, rounds)
    raise AssertionError


def compared(run: Run) -> compare.Comparison:
    first, second = (Side(label=name, run=run, target=name) for name in NAMES)
    return compare.compare(first, second)


def test_calm_numbers_are_enough_and_wild_ones_are_not() -> None:
    calm, wild = (bench(1, size, least=24, most=96) for size in (0.02, 0.16))
    assert (calm.rounds, 24 < wild.rounds < 96) == (24, True)
    assert bench(1, 0.5, least=24, most=96).rounds == 96


def test_a_difference_neither_ends_a_bench_nor_makes_it_longer() -> None:
    for seed in range(5):
        alike, apart = (bench(seed, 0.16, slower, least=24, most=96) for slower in (1.0, 2.0))
        assert alike.rounds == apart.rounds


def test_targets_that_are_alike_are_told_to_be_however_the_numbers_vary() -> None:
    verdicts = [
        one.verdict
        for seed in range(6)
        for one in compared(bench(seed, 0.15, least=24, most=96)).metrics
    ]
    assert verdicts.count("no difference") >= 0.9 * len(verdicts)


def test_going_on_raises_no_more_alarms_than_chance() -> None:
    """From 6 to 10 rounds, of which all patterns can be looked at, 1,000 times."""
    alarms, longer = 0, 0
    designs = {rounds: statistics.paired(rounds) for rounds in range(6, 11)}
    for seed in range(1000):
        run = bench(seed, 0.05, least=6, most=10)
        longer += run.rounds > 6
        rows = bench_runs.differences(run, *NAMES)
        alarms += min(statistics.p_values(rows, designs[run.rounds]).values()) < statistics.ALPHA
    assert longer > 300
    # Of 1,000, 50 at most are expected; more than 67 come by chance in one of 150 tries.
    assert alarms <= 67


def test_whose_numbers_they_are_does_not_decide_how_long_a_bench_is() -> None:
    """What the p-values are exact by: names exchanged in a round change nothing."""
    names = ("a", "b", "c")
    for seed in range(20):
        whole = bench_runs.run(dict.fromkeys(names, 1.0), seed, rounds=9)
        chance = bench_runs.seeded(seed)
        names_of = [dict(zip(names, chance.sample(names, 3), strict=True)) for _ in range(9)]
        exchanged = [
            structs.replace(wave, target=names_of[wave.round][wave.target]) for wave in whole.waves
        ]
        for margin in (0.01 * step for step in range(1, 100)):
            enough = precision.is_enough(whole.waves, names, margin)
            assert precision.is_enough(exchanged, names, margin) == enough


def test_a_long_bench_asks_no_more_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_MORE_SECONDS", 0)
    with fake_streams(FakeStreams()) as port:
        targets = [
            RemoteTarget(name, f"http://127.0.0.1:{port}", None, None, cached=False)
            for name in NAMES
        ]
        with Bench(targets, asked(more=30), Silent()) as made:
            measured = made.run()
    # One more: only once all rounds were asked does the time begin that more may take.
    assert max(wave.round for wave in measured.waves) <= 6


class OnTheCard(RemoteTarget):
    """A target on a card that another shares, which comes up so many times and then no more."""

    def __init__(self, name: str, port: int, times: int) -> None:
        super().__init__(name, f"http://127.0.0.1:{port}", None, None, cached=False)
        self.cards = frozenset({"0000:03:00.0"})
        self._times = times

    def open(self, progress: Progress) -> Opened:
        """Raises EngineFailure once it came up as often as it does."""
        self._times -= 1
        if self._times < 0:
            raise EngineFailure("it does not come up", "It never will again.")
        return super().open(progress)


def asked(more: int) -> Asked:
    """Six rounds, and so many more where nothing is ever precise enough."""
    return Asked(
        prompts=(all_prompts()["small"],),
        clients=(1,),
        rounds=6,
        more_rounds=more,
        margin=1e-6,
        cached=False,
        order=1,
    )


@pytest.mark.parametrize(("more", "rounds"), [(0, 6), (3, 9)])
def test_a_bench_asks_more_rounds_of_servers_that_vary_and_no_more_than_it_may(
    more: int, rounds: int
) -> None:
    with fake_streams(FakeStreams()) as port:
        targets = [
            RemoteTarget(name, f"http://127.0.0.1:{port}", None, None, cached=False)
            for name in NAMES
        ]
        with Bench(targets, asked(more), Silent()) as made:
            measured = made.run()
    assert {wave.round for wave in measured.waves} == set(range(rounds))


def test_no_more_rounds_are_asked_for_a_target_that_is_gone() -> None:
    with fake_streams(FakeStreams()) as port:
        targets = [OnTheCard("a", port, times=99), OnTheCard("b", port, times=3)]
        with Bench(targets, asked(more=3), Silent()) as made:
            measured = made.run()
    (lack,) = measured.not_measured
    assert (lack.target, lack.hint) == ("b", "It never will again.")
    assert {wave.round for wave in measured.waves} == set(range(6))
