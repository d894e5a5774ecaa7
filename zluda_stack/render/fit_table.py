"""docs/fit-table.md: which model of the catalogue fits which card, computed and committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from zluda_stack.catalog.schema import Catalog, Model
from zluda_stack.models.architecture import Architecture
from zluda_stack.models.client_use import agent_floor
from zluda_stack.models.fit import COMPARED, Serving
from zluda_stack.models.fit_report import (
    CardMemory,
    experts_outside,
    fitting_batch,
    longest_context,
)
from zluda_stack.models.flash import as_served
from zluda_stack.models.on_host import has_experts_to_leave
from zluda_stack.models.published import architecture_of
from zluda_stack.settings import Profile

PATH = "docs/fit-table.md"
# What cards are sold with, in GiB; 120 is what the graphics of a processor with 128 GB can use
# where its driver lets it (https://github.com/gpustack/gpustack/issues/4848).
MEMORIES = (8, 12, 16, 20, 24, 32, 48, 120)
# The native profile serves Instinct cards too, of which one shows up with 64 GiB or more.
NATIVE_MEMORIES = (8, 12, 16, 20, 24, 32, 48, 64, 120, 192)
_GIB = 2**30
_NONE = "-"
_HEAD = """\
# Which model fits which card

Written by `zluda-stack render --committed` from the catalogue; change that, not this file.

There is one table for `--profile translated`, and one for `--profile native`. A cell is the
longest context, in steps of 1024 tokens, with which all of the model fits the memory that the
column names (in GiB, with nothing else on the card): KV cache in f16, four slots that share the
context, and batches of 128 tokens where larger ones leave no room. `{none}`: it fits with none.
**Bold**: the model calls tools, and there is room for the {floor} tokens that a coding client
needs.

All of it is computed from published shapes (`zluda-stack models explain NAME` has their sources):
none of it was measured on an AMD card. Rows with a * are of architectures whose compute buffers
were never compared with llama.cpp's. The column 120 is for the graphics of a processor with 128
GB of memory, where the driver gives them 120; what yours gives, `zluda-stack gpus` says.
`zluda-stack models list --fits` weighs the models against what is free now. `?` is known once the
model is here.
"""


class _Table(Struct, frozen=True, kw_only=True):
    """One table of the page: its profile, the columns in GiB, what goes before it."""

    profile: Profile
    memories: tuple[int, ...]
    text: str


_TABLES = (
    _Table(
        profile="translated",
        memories=MEMORIES,
        text="CUDA through ZLUDA, the default: without FlashAttention kernels.\n",
    ),
    _Table(
        profile="native",
        memories=NATIVE_MEMORIES,
        text="""\
[llama.cpp's HIP build](native.md). Models with a + have heads that its FlashAttention kernels are
for, and take less for a long context; the others take what they take above.
""",
    ),
)
_EXPERTS = """
## Experts in the machine's memory

A card that does not hold all of a model with experts can serve it with the experts of some layers
in the machine's memory (llama.cpp's `--n-cpu-moe`). A cell is of how many layers, for a context of
{floor} tokens and `--profile translated`: as few as fit with batches of 512 tokens, or else of 256
or 128. 0: all of it fits. `{none}`: not even so. What the machine must have room for then is told
by `zluda-stack models fit NAME --vram 12G`, and how much slower that is by [models.md](models.md).

"""


def render_fit_table(catalog: Catalog) -> str:
    """The page as text, the same on every machine."""
    floor = agent_floor(catalog)
    sections = (_section(catalog, table, floor) for table in _TABLES)
    page = _HEAD.format(none=_NONE, floor=floor) + "".join(sections)
    return page + _experts(catalog, floor)


def _section(catalog: Catalog, table: _Table, floor: int) -> str:
    columns = ("model", "parameters", "type", *map(str, table.memories))
    rule = ["---"] * 3 + ["--:"] * len(table.memories)
    rows = (_row(model, table, floor) for model in catalog.models.values())
    lines = "".join(_line(cells) for cells in (columns, rule, *rows))
    return f"\n## `--profile {table.profile}`\n\n{table.text}\n{lines}"


def _experts(catalog: Catalog, floor: int) -> str:
    """The table of models with experts, by the default profile."""
    columns = ("model", "layers", *map(str, MEMORIES))
    rule = ["---"] + ["--:"] * (1 + len(MEMORIES))
    shapes = {model.name: architecture_of(model) for model in catalog.models.values()}
    rows = (
        (name, str(len(shape.layers)), *_left_out(shape, floor))
        for name, shape in shapes.items()
        if shape is not None and has_experts_to_leave(shape)
    )
    lines = "".join(_line(cells) for cells in (columns, rule, *rows))
    return _EXPERTS.format(none=_NONE, floor=floor) + lines


def _left_out(shape: Architecture, floor: int) -> Iterator[str]:
    serving = as_served(shape, Serving(context=floor), "translated")
    for size in MEMORIES:
        card = CardMemory(label=f"{size} GiB", memory=size * _GIB)
        outside = experts_outside(shape, serving, card)
        if outside is not None:
            yield str(outside.layers)
        else:
            yield _NONE if fitting_batch(shape, serving, size * _GIB) is None else "0"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _row(model: Model, table: _Table, floor: int) -> tuple[str, ...]:
    architecture = architecture_of(model)
    parameters = model.parameters + (f", {model.active} active" if model.active else "")
    if architecture is None:
        unknown = ("?",) * len(table.memories)
        return (model.name, parameters, model.quantisation, *unknown)
    serving = as_served(architecture, Serving(context=floor), table.profile)
    longest = (longest_context(architecture, serving, size * _GIB) for size in table.memories)
    mark = "" if architecture.name in COMPARED else "*"
    flash = "+" if serving.attention == "flash" else ""
    cells = (_cell(model, context or 0, floor) for context in longest)
    return (model.name + mark + flash, parameters, model.quantisation, *cells)


def _cell(model: Model, context: int, floor: int) -> str:
    if context < 1024:
        return _NONE
    text = f"{context // 1024}k"
    return f"**{text}**" if model.tools and context >= floor else text
