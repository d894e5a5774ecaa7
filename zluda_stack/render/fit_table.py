"""docs/fit-table.md: which model of the catalogue fits which card, computed and committed."""

from __future__ import annotations

from collections.abc import Iterable

from zluda_stack.catalog.schema import Catalog, Model
from zluda_stack.models.client_use import agent_floor
from zluda_stack.models.fit import COMPARED, Serving
from zluda_stack.models.fit_report import longest_context
from zluda_stack.models.published import architecture_of

PATH = "docs/fit-table.md"
# What cards are sold with, in GiB; 120 is what the graphics of a processor with 128 GB can use
# where its driver lets it (https://github.com/gpustack/gpustack/issues/4848).
MEMORIES = (8, 12, 16, 20, 24, 32, 48, 120)
_GIB = 2**30
_NONE = "-"
_HEAD = """\
# Which model fits which card

Written by `zluda-stack render --committed` from the catalogue; change that, not this file.

A cell is the longest context, in steps of 1024 tokens, with which all of the model fits the
memory that the column names (in GiB, with nothing else on the card): KV cache in f16, four slots
that share the context, and batches of 128 tokens where larger ones leave no room. `{none}`: it
fits with none. **Bold**: the model calls tools, and there is room for the {floor} tokens that a
coding client needs.

All of it is computed from published shapes (`zluda-stack models explain NAME` has their sources):
none of it was measured on an AMD card. Rows with a * are of architectures whose compute buffers
were never compared with llama.cpp's. The last column is for the graphics of a processor with 128
GB of memory, where the driver gives them 120; what yours gives, `zluda-stack gpus` says.
`zluda-stack models list --fits` weighs the models against what is free now. `?` is known once the
model is here.

"""


def render_fit_table(catalog: Catalog) -> str:
    """The page as text, the same on every machine."""
    floor = agent_floor(catalog)
    columns = ("model", "parameters", "type", *map(str, MEMORIES))
    rows = [_row(model, floor) for model in catalog.models.values()]
    lines = [_line(columns), _line(["---"] * 3 + ["--:"] * len(MEMORIES)), *map(_line, rows)]
    return _HEAD.format(none=_NONE, floor=floor) + "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _row(model: Model, floor: int) -> tuple[str, ...]:
    architecture = architecture_of(model)
    parameters = model.parameters + (f", {model.active} active" if model.active else "")
    if architecture is None:
        unknown = ("?",) * len(MEMORIES)
        return (model.name, parameters, model.quantisation, *unknown)
    serving = Serving(context=floor)
    longest = (longest_context(architecture, serving, memory * _GIB) for memory in MEMORIES)
    mark = "" if architecture.name in COMPARED else "*"
    cells = (_cell(model, context or 0, floor) for context in longest)
    return (model.name + mark, parameters, model.quantisation, *cells)


def _cell(model: Model, context: int, floor: int) -> str:
    if context < 1024:
        return _NONE
    text = f"{context // 1024}k"
    return f"**{text}**" if model.tools and context >= floor else text
