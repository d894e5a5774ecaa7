"""Gate `size`, on real trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zluda_stack.errors import HostProblem, UsageError
from zluda_stack.gates import size


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "image"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "large.so").write_bytes(bytes(3_000_000))
    (folder / "small").write_bytes(bytes(500_000))
    return folder


def test_a_tree_within_its_budget_passes_with_its_size(tree: Path) -> None:
    verdict = size.check([tree], budget=3_500_000)
    assert verdict.reason is None
    assert verdict.facts["bytes"] == 3_500_000
    assert verdict.summary == "2 files take 3.5 MB, the budget is 3.5 MB"


def test_one_byte_too_many_is_refused_with_the_largest_files_first(tree: Path) -> None:
    verdict = size.check([tree], budget=3_499_999)
    assert verdict.reason == "2 files take 3.5 MB, the budget is 3.5 MB"
    assert [Path(found.subject).name for found in verdict.findings] == ["large.so", "small"]


def test_hard_links_count_once_and_symbolic_links_not_at_all(tree: Path) -> None:
    os.link(tree / "small", tree / "again")
    (tree / "link").symlink_to("lib/large.so")
    assert size.check([tree, tree / "lib"], budget=10**9).facts["bytes"] == 3_500_000


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(HostProblem, match="absent"):
        size.check([tmp_path / "absent"], budget=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("800MB", 800_000_000), ("1.5 GB", 1_500_000_000), ("12kB", 12_000), ("7", 7)],
)
def test_sizes_are_read_as_people_write_them(text: str, expected: int) -> None:
    assert size.parse(text) == expected


@pytest.mark.parametrize("text", ["", "big", "-1MB", "1e9", "1GiB", "1" * 400])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        size.parse(text)
