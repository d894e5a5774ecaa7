"""What a comparison says of benches of which the truth is known."""

from __future__ import annotations

import random

import pytest
from msgspec import structs

from tests.unit import bench_runs
from tests.unit.bench_runs import seeded
from zluda_stack.bench import report
from zluda_stack.bench.compare import Comparison, Side, compare
from zluda_stack.bench.metrics import Metric
from zluda_stack.bench.saved import Answer, Run
from zluda_stack.errors import UsageError

_ALIKE = {"a": 1.0, "b": 1.0}
_SLOWED = {"a": 1.0, "b": 1.1}


def in_one_go(run: Run) -> Comparison:
    """The first two targets of a bench beside each other."""
    first, second, *_ = (Side(label=name, run=run, target=name) for name in run.names)
    return compare(first, second)


def apart(one: Run, other: Run) -> Comparison:
    """Two benches of one target each."""
    return compare(Side(label="A", run=one, target="a"), Side(label="B", run=other, target="a"))


def verdicts(comparison: Comparison) -> set[str]:
    return {one.verdict for one in comparison.metrics}


def quiet(chance: random.Random, _: float) -> float:
    """A machine that does nothing else."""
    return chance.gauss(0, 0.02)


def test_a_target_beside_itself_is_no_difference() -> None:
    for seed in range(10):
        comparison = in_one_go(bench_runs.run(_ALIKE, seed, rounds=16, noise=quiet))
        assert verdicts(comparison) == {"no difference"}


def test_a_drifting_machine_raises_no_more_false_alarms_than_chance_does() -> None:
    alarms = sum(in_one_go(bench_runs.run(_ALIKE, seed)).differs for seed in range(60))
    assert alarms <= 6  # 3 are expected; more than 6 come by chance in one of 30 tries


def test_a_server_that_takes_ten_percent_longer_is_seen_on_that_machine() -> None:
    seen = 0
    for seed in range(10):
        found = in_one_go(bench_runs.run(_SLOWED, seed, rounds=16)).metrics
        seen += sum(one.verdict == "slower" for one in found)
        assert not any(one.verdict == "faster" for one in found)
    assert seen >= 0.8 * 10 * len(found)


def test_the_metrics_of_a_single_client_are_four() -> None:
    found = in_one_go(bench_runs.run(_ALIKE, 1)).metrics
    assert [one.what.metric for one in found] == [
        Metric.BETWEEN,
        Metric.FIRST,
        Metric.GENERATION,
        Metric.PROMPT,
    ]


def test_several_clients_have_a_rate_of_all_together() -> None:
    found = in_one_go(bench_runs.run(_SLOWED, 1, clients=4, noise=quiet)).metrics
    together = next(one for one in found if one.what.metric is Metric.TOGETHER)
    assert together.verdict == "slower"
    assert together.low is not None
    assert together.high is not None
    assert together.low < 1 / 1.1 - 1 < together.high


def test_the_verdict_names_the_faster_one_with_an_interval() -> None:
    comparison = in_one_go(bench_runs.run(_SLOWED, 4, noise=quiet))
    told = [report.verdict(comparison, one) for one in comparison.metrics]
    assert all(text.startswith("a is ") and " % faster (" in text for text in told), told
    backwards = in_one_go(bench_runs.run({"a": 1.1, "b": 1.0}, 4, noise=quiet))
    assert report.verdict(backwards, backwards.metrics[0]).startswith("b is ")


def test_a_difference_of_a_few_per_cent_counts_as_none_unless_it_is_asked_for() -> None:
    run = bench_runs.run({"a": 1.03, "b": 1.0}, 4, rounds=24, noise=quiet)
    comparison = in_one_go(run)
    assert verdicts(comparison) == {"no difference"}
    assert min(one.low or 0.0 for one in comparison.metrics) > 0  # it is there
    first, second = (Side(label=name, run=run, target=name) for name in run.names)
    assert verdicts(compare(first, second, 0.02)) == {"faster"}


def test_too_few_rounds_cannot_tell_and_say_how_many_could() -> None:
    comparison = in_one_go(bench_runs.run(_SLOWED, 1, rounds=3, noise=quiet))
    assert verdicts(comparison) == {"cannot tell"}
    told = report.verdict(comparison, comparison.metrics[0])
    assert told == "cannot tell: needs about 6 rounds, and had 3"


def test_a_lead_without_an_upper_bound_has_a_lower_one() -> None:
    comparison = in_one_go(bench_runs.run(_SLOWED, 4, noise=quiet))
    told = structs.replace(comparison.metrics[0], faster=9.0, low=7.5, high=None, verdict="faster")
    assert report.verdict(comparison, told) == "b is 900.0 % faster (at least 750.0 %)"


def test_a_target_of_a_bench_is_not_compared_with_itself() -> None:
    side = Side(label="a", run=bench_runs.run(_ALIKE, 1), target="a")
    with pytest.raises(UsageError, match="the same target of the same bench"):
        compare(side, structs.replace(side, label="b"))


def test_a_machine_that_is_too_restless_cannot_tell() -> None:
    comparison = in_one_go(bench_runs.run(_ALIKE, 1, noise=lambda chance, _: chance.gauss(0, 0.8)))
    assert "cannot tell" in verdicts(comparison)
    assert all(one.rounds is None or one.rounds > 8 for one in comparison.metrics)


def test_benches_of_different_times_say_what_they_cannot_tell() -> None:
    one, other = (bench_runs.run({"a": 1.0}, seed, noise=quiet) for seed in (1, 2))
    comparison = apart(one, other)
    assert verdicts(comparison) == {"no difference"}
    assert not comparison.paired
    assert "different times" in comparison.notes[0]
    assert in_one_go(bench_runs.run(_ALIKE, 1)).notes == ()


def test_benches_of_different_times_see_what_is_slower_too() -> None:
    one = bench_runs.run({"a": 1.0}, 1, noise=quiet)
    other = bench_runs.run({"a": 1.15}, 2, noise=quiet)
    assert verdicts(apart(one, other)) == {"slower"}


def test_what_a_machine_drifts_within_a_bench_is_no_difference_between_two() -> None:
    alarms = 0
    for seed in range(6):
        one = bench_runs.run({"a": 1.0}, seed)
        later = bench_runs.run({"a": 1.0}, 100 + seed, began=0.4)
        alarms += apart(one, later).differs
    assert not alarms


def test_a_target_with_errors_is_no_winner() -> None:
    run = bench_runs.run({"a": 1.0, "b": 0.5}, 1, noise=quiet)
    wave = next(one for one in run.waves if one.target == "b")
    broken = structs.replace(wave, answers=(*wave.answers, Answer(fault="HTTP 500: oh")))
    run = structs.replace(run, waves=(*run.waves, broken))
    comparison = in_one_go(run)
    assert verdicts(comparison) == {"errors"}
    assert "no winner" in report.verdict(comparison, comparison.metrics[0])
    assert "1 of 18 requests to b failed" in comparison.notes[0]


def test_a_target_with_errors_can_lose() -> None:
    run = bench_runs.run({"a": 1.0, "b": 2.0}, 1, noise=quiet)
    wave = next(one for one in run.waves if one.target == "b")
    broken = structs.replace(wave, answers=(*wave.answers, Answer(fault="HTTP 500: oh")))
    assert verdicts(in_one_go(structs.replace(run, waves=(*run.waves, broken)))) == {"slower"}


def test_other_models_prompts_and_machines_are_said() -> None:
    one, other = (bench_runs.run({"a": 1.0}, seed, noise=quiet) for seed in (1, 2))
    other = structs.replace(
        other,
        targets=(structs.replace(other.targets[0], model="another"),),
        prompts={"small": "another"},
        machine=structs.replace(other.machine, cpu_count=64),
    )
    notes = " ".join(apart(one, other).notes)
    assert "different models" in notes
    assert "different prompts" in notes
    assert "different machines" in notes


def test_nothing_in_common_is_refused() -> None:
    one = bench_runs.run({"a": 1.0}, 1, rounds=1)
    other = structs.replace(bench_runs.run({"a": 1.0}, 1, rounds=1), waves=())
    with pytest.raises(UsageError, match="in common"):
        apart(one, other)


def test_a_wave_that_lost_an_answer_has_no_rate_of_all_together() -> None:
    run = bench_runs.run(_ALIKE, 1, clients=2)
    broken = tuple(
        structs.replace(wave, answers=(wave.answers[0], Answer(fault="gone"))) for wave in run.waves
    )
    found = in_one_go(structs.replace(run, waves=broken)).metrics
    assert Metric.TOGETHER not in {one.what.metric for one in found}
    assert Metric.FIRST in {one.what.metric for one in found}


def test_each_round_visits_every_target_twice_in_an_order_of_its_own() -> None:
    from zluda_stack.bench.schedule import order

    visits = order(("a", "b", "c"), 50, seed=seeded(1).randrange(2**32))
    rounds = [[one.target for one in visits if one.round == number] for number in range(50)]
    assert all(turn == turn[::-1] for turn in rounds)
    assert all(sorted(turn) == ["a", "a", "b", "b", "c", "c"] for turn in rounds)
    assert len({tuple(turn) for turn in rounds}) == 6
