"""What a model takes of each of several cards, beside what llama.cpp itself allocates there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.gguf_shapes import SHAPES, write_shape
from zluda_stack.models.architecture import read_architecture
from zluda_stack.models.fit import Serving, needs
from zluda_stack.models.fit_split import needs_by_card

MIB = 2**20
MEASURED = Path(__file__).parents[1] / "data" / "split-measured.yml"
ROWS: list[dict[str, Any]] = yaml.safe_load(MEASURED.read_text())["measured"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['shape']}-{row['context']}")
def test_it_is_what_llama_cpp_allocated_on_two_cards(tmp_path: Path, row: dict[str, Any]) -> None:
    model = read_architecture(write_shape(tmp_path / "model.gguf", SHAPES[row["shape"]]))
    asked = Serving(context=row["context"], batch=row["batch"])
    assert sum(row["split"]) == len(model.layers) + 1
    assert row["layers"][0][1] + 1 == row["split"][0]
    for number, found in enumerate(needs_by_card(model, asked, row["split"])):
        assert found.weights / MIB == pytest.approx(row["model"][number], abs=0.1)
        assert found.cache / MIB == pytest.approx(row["kv"][number], abs=0.1)
        assert found.states / MIB == pytest.approx(row["states"][number], abs=0.1)
        compute, seen = found.compute / MIB, row["compute"][number]
        assert seen <= compute <= 1.3 * seen
        assert found.total / MIB >= row["loaded"][number]


def test_one_card_that_has_all_needs_what_the_model_does_but_for_the_copies(tmp_path: Path) -> None:
    model = read_architecture(write_shape(tmp_path / "model.gguf", SHAPES["gemma3"]))
    asked = Serving(context=8192)
    (spread,) = needs_by_card(model, asked, (len(model.layers) + 1,))
    whole = needs(model, asked)
    assert (spread.weights, spread.cache, spread.host) == (whole.weights, whole.cache, whole.host)
    assert spread.compute > whole.compute
