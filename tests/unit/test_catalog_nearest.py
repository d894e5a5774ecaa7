"""What people type is understood, or answered with what they may have meant."""

from __future__ import annotations

import pytest

from zluda_stack.catalog.load import load
from zluda_stack.catalog.nearest import find_gpu, nearest, suggest_gpu

CATALOG = load()


@pytest.mark.parametrize(
    ("typed", "target"),
    [
        ("gfx1100", "gfx1100"),
        ("GFX90A", "gfx90a"),
        ("1100", "gfx1100"),
        (" gfx1201 ", "gfx1201"),
        ("rx 7900 xtx", "gfx1100"),
        ("RX7900XTX", "gfx1100"),
        ("7900 XTX", "gfx1100"),
        ("AMD Radeon RX 7900 XTX", "gfx1100"),
        ("AMD Radeon Graphics 780M", "gfx1103"),
        ("mi300x", "gfx942"),
        ("Radeon VII", "gfx906"),
        ("W7900", "gfx1100"),
    ],
)
def test_a_gpu_is_found_as_people_type_it(typed: str, target: str) -> None:
    found = find_gpu(CATALOG, typed)
    assert found is not None
    assert found.target == target


@pytest.mark.parametrize("typed", ["", "gfx", "rtx 4090", "gfx1199", "rx 7900", "amd"])
def test_what_names_no_gpu_exactly_is_not_guessed(typed: str) -> None:
    assert find_gpu(CATALOG, typed) is None


@pytest.mark.parametrize(
    ("typed", "targets"),
    [
        ("rx7900", ["gfx1100"]),
        ("gfx110", ["gfx1100", "gfx1101", "gfx1102"]),
        ("gfx1104", ["gfx1100", "gfx1101", "gfx1102"]),
        ("gxf1100", ["gfx1100"]),
        ("rx 7900 xtz", ["gfx1100"]),
        ("gfx803", ["gfx803"]),
        ("6700", ["gfx1031"]),
        ("rtx 4090", []),
        ("banana", []),
        ("", []),
    ],
)
def test_the_nearest_gpus_are_suggested(typed: str, targets: list[str]) -> None:
    assert [gpu.target for gpu in suggest_gpu(CATALOG, typed)] == targets


def test_the_nearest_name_is_found_by_beginning_part_and_likeness() -> None:
    names = ("smollm2-135m", "zluda", "cuda-toolkit")
    assert nearest("smol", names) == ("smollm2-135m",)
    assert nearest("TOOLKIT", names) == ("cuda-toolkit",)
    assert nearest("zulda", names) == ("zluda",)
    assert nearest("  ", names) == ()


def test_at_most_three_names_are_given() -> None:
    assert len(nearest("a", ("ab", "ac", "ad", "ae"))) == 3
