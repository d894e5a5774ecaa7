"""docs/fit-table.md says of every model, card and profile what `models fit` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.command_line import run
from zluda_stack.catalog.load import load
from zluda_stack.render.fit_table import MEMORIES, NATIVE_MEMORIES, PATH

PAGE = (Path(__file__).parents[2] / PATH).read_text()
Rows = dict[str, list[str]]


def rows_of(section: str) -> Rows:
    lines = (line.strip("|").split("|") for line in section.splitlines() if line.startswith("| "))
    stripped = ([cell.strip() for cell in line] for line in lines)
    return {cells[0].rstrip("*+"): cells[3:] for cells in stripped}


WHOLE, EXPERTS = PAGE.split("## Experts in the machine's memory")
_, TRANSLATED, NATIVE = WHOLE.split("## `--profile")
TABLES = {"translated": rows_of(TRANSLATED), "native": rows_of(NATIVE)}
COLUMNS = {"translated": MEMORIES, "native": NATIVE_MEMORIES}
BOTH = pytest.mark.parametrize("profile", TABLES)


def tokens(cell: str) -> int:
    return 0 if cell == "-" else int(cell.strip("*k"))


@BOTH
def test_every_model_of_the_catalogue_is_a_row(profile: str) -> None:
    rows = TABLES[profile]
    assert set(load().models) == set(rows) - {"model", "---"}
    assert rows["model"] == list(map(str, COLUMNS[profile]))


@BOTH
def test_a_larger_card_never_has_less_room(profile: str) -> None:
    for name in load().models:
        cells = TABLES[profile][name]
        if "?" not in cells:
            room = list(map(tokens, cells))
            assert room == sorted(room), name


@BOTH
def test_a_cell_is_what_models_fit_says_of_that_card(profile: str) -> None:
    asked = ("models", "fit", "qwen3-4b", "--vram", "16G", "--profile", profile, "--json")
    (card,) = run(*asked).json["cards"]
    cell = TABLES[profile]["qwen3-4b"][COLUMNS[profile].index(16)]
    assert cell == f"**{card['largest_context'] // 1024}k**"


def test_a_model_with_flash_kernels_has_more_room_natively_and_no_model_less() -> None:
    assert "qwen3-4b+ |" in NATIVE
    assert "+ |" not in TRANSLATED
    for name in load().models:
        translated, native = TABLES["translated"][name], TABLES["native"][name]
        if "?" not in translated:
            shared = [native[NATIVE_MEMORIES.index(size)] for size in MEMORIES]
            pairs = zip(map(tokens, translated), map(tokens, shared), strict=True)
            assert all(before <= after for before, after in pairs), name
    assert tokens(TABLES["native"]["qwen3-4b"][2]) > tokens(TABLES["translated"]["qwen3-4b"][2])


def test_a_larger_card_never_leaves_more_experts_out() -> None:
    lines = [line.strip("|").split("|") for line in EXPERTS.splitlines() if line.startswith("| ")]
    rows = {name.strip(): [cell.strip() for cell in cells] for name, *cells in lines}
    assert rows.pop("model") == ["layers", *map(str, MEMORIES)]
    del rows["---"]
    assert rows.keys() <= load().models.keys()
    for name, (layers, *cells) in rows.items():
        outside = [int(layers) + 1 if cell == "-" else int(cell) for cell in cells]
        assert outside == sorted(outside, reverse=True), name


def test_a_cell_of_experts_is_what_models_fit_says_of_that_card() -> None:
    name = "qwen3-coder-30b-a3b"
    asked = ("models", "fit", name, "--vram", "12G", "--ctx", "24576", "--json")
    (card,) = run(*asked).json["cards"]
    (row,) = [line.split("|") for line in EXPERTS.splitlines() if line.startswith(f"| {name} ")]
    assert int(row[3 + MEMORIES.index(12)]) == card["experts_outside"]["layers"]


@BOTH
def test_only_models_that_call_tools_are_for_a_coding_client(profile: str) -> None:
    models = load().models
    bold = {name for name, cells in TABLES[profile].items() if any("**" in cell for cell in cells)}
    assert bold
    assert all(models[name].tools for name in bold)
