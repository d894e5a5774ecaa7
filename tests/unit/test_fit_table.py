"""docs/fit-table.md says of every model and card what `models fit` says."""

from __future__ import annotations

from pathlib import Path

from tests.unit.command_line import run
from zluda_stack.catalog.load import load
from zluda_stack.render.fit_table import MEMORIES, PATH

PAGE = (Path(__file__).parents[2] / PATH).read_text()
ROWS = {
    cells[0].rstrip("*"): cells[3:]
    for cells in (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.splitlines()
        if line.startswith("| ")
    )
}


def tokens(cell: str) -> int:
    return 0 if cell == "-" else int(cell.strip("*k"))


def test_every_model_of_the_catalogue_is_a_row() -> None:
    assert set(load().models) == set(ROWS) - {"model", "---"}
    assert ROWS["model"] == list(map(str, MEMORIES))


def test_a_larger_card_never_has_less_room() -> None:
    for name in load().models:
        if "?" not in ROWS[name]:
            room = list(map(tokens, ROWS[name]))
            assert room == sorted(room), name


def test_a_cell_is_what_models_fit_says_of_that_card() -> None:
    (card,) = run("models", "fit", "qwen3-14b", "--vram", "16G", "--json").json["cards"]
    assert ROWS["qwen3-14b"][MEMORIES.index(16)] == f"**{card['largest_context'] // 1024}k**"


def test_only_models_that_call_tools_are_for_a_coding_client() -> None:
    models = load().models
    bold = {name for name, cells in ROWS.items() if any("**" in cell for cell in cells)}
    assert bold
    assert all(models[name].tools for name in bold)
