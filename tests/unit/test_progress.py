"""Rates, the time that is left, and several threads on one line."""

from __future__ import annotations

import pytest

from tests.unit.recorder import Recorder
from zluda_stack.progress import Part, Rate, Together


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("total", "told"),
    [
        (None, "2.0 MB/s"),
        (30_000_000, "2.0 MB/s, 5 s left"),
        (620_000_000, "2.0 MB/s, 5 min left"),
        (44_000_000_000, "2.0 MB/s, 6 h 7 min left"),
    ],
)
def test_a_rate_is_of_the_last_seconds(total: int | None, told: str) -> None:
    clock = Clock()
    rate = Rate(clock)
    for second in range(20):  # first slow, then 2 MB a second
        clock.now = second
        rate.see(second if second < 10 else 2_000_000 * (second - 9))
    assert rate.told(total) == told


def test_no_rate_is_made_up() -> None:
    clock = Clock()
    rate = Rate(clock)
    assert rate.told(10) == ""
    rate.see(0)
    clock.now = 0.5
    rate.see(5)
    assert rate.told(10) == ""
    clock.now = 5
    rate.see(5)
    rate.see(2)  # begun anew
    assert rate.told(10) == ""


def test_several_threads_are_added_up_and_only_their_news_is_told() -> None:
    seen = Recorder()
    together = Together(seen, "fetching a, b")
    first, second = together.lane("a", 100), together.lane("b", None)
    first.step("downloading a")
    first.bytes(10, 100)
    second.bytes(5, 50)
    second.step("downloading b ... now: no byte came for a while; trying again in 2 s")
    assert seen.counts == [(10, None), (15, 150)]
    assert seen.steps == [
        "fetching a, b",
        "fetching a, b ... now: b: no byte came for a while; trying again in 2 s",
    ]


def test_a_part_counts_behind_those_before_it() -> None:
    seen = Recorder()
    Part(seen, 100, 300).bytes(20, 100)
    Part(seen, 0, None).bytes(20, 100)
    Part(seen, 100, None).bytes(20, 100)
    assert seen.counts == [(120, 300), (20, 100), (120, None)]
