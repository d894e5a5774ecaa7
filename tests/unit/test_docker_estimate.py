"""A build's cost is said before it starts, and a disk that cannot hold it stops it (C18)."""

from __future__ import annotations

import pytest

from zluda_stack.engines.docker.estimate import BuildCost, duration, require_room
from zluda_stack.errors import HostProblem


def _cost(*, minutes: float = 0, disk_gb: float = 0, free_gb: float | None = None) -> BuildCost:
    return BuildCost(
        images=(),
        minutes=minutes,
        disk_gb=disk_gb,
        memory_gb=8,
        free_gb=free_gb,
        storage="/var/lib/docker",
    )


def test_a_disk_that_is_too_small_is_refused_with_both_numbers_and_a_way_out() -> None:
    with pytest.raises(HostProblem) as refused:
        require_room(_cost(disk_gb=60, free_gb=30))

    assert "60 GB" in refused.value.message
    assert "30 GB" in refused.value.message
    assert "/var/lib/docker" in refused.value.message
    assert "docker buildx prune" in refused.value.hint


@pytest.mark.parametrize("free_gb", [60, 61, None])
def test_enough_room_and_an_unknown_disk_let_the_build_start(free_gb: float | None) -> None:
    require_room(_cost(disk_gb=60, free_gb=free_gb))


def test_only_hours_and_many_gigabytes_ask_for_consent() -> None:
    assert _cost(minutes=200).is_large
    assert _cost(disk_gb=40).is_large
    assert not _cost(minutes=8, disk_gb=2).is_large


def test_times_are_told_as_people_say_them() -> None:
    assert duration(0.2) == "1 min"
    assert duration(42) == "42 min"
    assert duration(210) == "3.5 h"


def test_the_summary_names_time_disk_and_memory() -> None:
    told = _cost(minutes=210, disk_gb=45).summary

    assert "3.5 h" in told
    assert "45.0 GB of disk" in told
    assert "8.0 GB of memory" in told
