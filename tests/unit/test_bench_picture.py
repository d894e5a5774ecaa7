"""The picture, and what is said where it cannot be drawn."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit import bench_runs
from zluda_stack.bench import picture
from zluda_stack.errors import HostProblem, UsageError

RUN = bench_runs.run({"translated": 1.0, "native": 0.8}, 1, rounds=2)


def test_without_matplotlib_it_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(HostProblem) as told:
        picture.require(Path("bench.png"))
    assert "pip install '.[bench]'" in told.value.hint


def test_another_format_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(UsageError, match=r"bench\.gif is neither"):
        picture.require(Path("bench.gif"))


def test_a_picture_names_targets_units_and_what_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")
    picture.draw(RUN, tmp_path / "bench.svg")
    told = (tmp_path / "bench.svg").read_text()
    for word in ("translated", "native", "tokens/s", "clients at once", "first token"):
        assert f"<!-- {word} -->" in told or f"<!-- small: {word} -->" in told, word
    assert told.count("<!-- clients at once -->") == 4, "a panel for each metric, and no empty one"
    before = (tmp_path / "bench.svg").read_bytes()
    picture.draw(RUN, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert len(before) > 1000
