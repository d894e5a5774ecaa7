"""Benches on disk: they come back as they were, and what is none is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.unit import bench_runs
from zluda_stack.bench import compare, report, saved
from zluda_stack.bench.saved import NotMeasured, Run, Watched
from zluda_stack.errors import HostProblem, StackError, UsageError

GIB = 2**30
RUN = bench_runs.run({"translated": 1.0, "native": 0.8}, 1, rounds=2)


def changed(**changes: object) -> Run:
    return structs.replace(RUN, **changes)


def test_a_bench_comes_back_with_every_sample(tmp_path: Path) -> None:
    saved.write(tmp_path / "b.json", RUN)
    assert saved.read(tmp_path / "b.json") == RUN


@pytest.mark.parametrize(
    "changes",
    [
        {"targets": ()},
        {"client_cpu": -1.0},
        *(
            {"waves": (structs.replace(RUN.waves[0], **{name: number}), *RUN.waves[1:])}
            for name, number in (("seconds", 1e308), ("seconds", -1.0), ("clients", -1))
        ),
    ],
    ids=str,
)
def test_what_no_bench_can_have_measured_is_damage(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    saved.write(tmp_path / "b.json", changed(**changes))
    with pytest.raises(UsageError, match=r"b\.json holds no bench"):
        saved.read(tmp_path / "b.json")


_NUMBERS = st.one_of(
    st.sampled_from([0, 1, -1, 5e-324, 1e-200, 1e6, 1e308, 10**9, 10**30]), st.floats(), st.none()
)


@given(numbers=st.lists(_NUMBERS, min_size=1, max_size=4), place=st.integers(0, 10**6))
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_numbers_are_compared_or_refused_in_our_words(
    tmp_path: Path, numbers: list[object], place: int
) -> None:
    told = json.loads(saved.to_json(RUN))
    answers = [answer for wave in told["waves"] for answer in wave["answers"]]
    for number in numbers:
        owner = (told, *told["waves"], *answers)[place % (1 + len(told["waves"]) + len(answers))]
        owner[sorted(owner)[place % len(owner)]] = number
        place //= 7
    file = tmp_path / "b.json"
    file.write_text(json.dumps(told))
    try:
        run = saved.read(file)
        first, second = (compare.Side(label=name, run=run, target=name) for name in run.names)
        assert report.compared(compare.compare(first, second))
    except StackError as error:
        assert error.hint


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "other"}', "\udcff", "[" * 9999])
def test_a_file_that_is_no_bench_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "b.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=r"b\.json holds no bench"):
        saved.read(file)


def test_a_later_version_is_not_guessed_at(tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    told = json.loads(saved.to_json(RUN))
    file.write_text(json.dumps({**told, "version": 2, "new": True}))
    with pytest.raises(UsageError, match="version 2, and this program reads version 1"):
        saved.read(file)


def test_a_file_that_is_not_there_is_a_problem_of_this_machine(tmp_path: Path) -> None:
    with pytest.raises(HostProblem, match="cannot read"):
        saved.read(tmp_path / "none.json")


def test_the_table_has_the_targets_of_one_number_next_to_each_other() -> None:
    told = report.rows(RUN)
    assert [row[3] for row in told[:2]] == ["translated", "native"]
    assert told[0][:3] == ("small", "1", "first token")
    assert " ms" in told[0][4] or " s" in told[0][4]
    assert len(told) == 8


def test_what_a_target_took_is_told_with_units() -> None:
    watched = (
        Watched(
            target="native", visit=0, memory=2**30, card_memory=8 * 2**30, watts=(199.0, 203.0)
        ),
        Watched(target="native", visit=1, memory=2**31, card_memory=4 * 2**30, watts=(201.0,)),
    )
    told = report.taken(changed(watched=watched))
    assert told[1] == ("native", "2.0 GiB", "8.0 GiB", "201 W", "4", "0")
    assert told[0] == ("translated", "-", "-", "-", "4", "0")


def test_a_client_that_is_busy_itself_is_said() -> None:
    assert report.notes(RUN) == []
    (note,) = report.notes(changed(client_cpu=0.7))
    assert "70% of a core" in note


def test_what_was_not_measured_is_said_with_its_reason() -> None:
    lack = NotMeasured(target="translated", prompt="coding", reason="HTTP 400: too long")
    assert report.notes(changed(not_measured=(lack,))) == [
        "translated, coding: not measured: HTTP 400: too long"
    ]
