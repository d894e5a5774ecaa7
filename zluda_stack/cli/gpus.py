"""`gpus`: the cards of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, output
from zluda_stack.cli.options import json_option, settings_options

if TYPE_CHECKING:
    from zluda_stack.plan.gpu_listing import GpuListing, GpuRow

_COLUMNS = (
    *("#", "name", "target", "kind", "memory", "PCI address", "render node"),
    *("ZLUDA", "ROCm", "choice"),
)


@click.command()
@settings_options("gpu")
@json_option
@click.pass_context
def gpus(ctx: click.Context, flags: dict[str, object], *, as_json: bool) -> None:
    """List the GPUs of this machine: what they are, who supports them, and which one is chosen.

    A number of the first column chooses that card: zluda-stack up --gpu 1
    """
    from zluda_stack.plan.gpu_listing import list_gpus

    configured = context.configured(ctx, flags)
    listing = list_gpus(context.facts(ctx, configured.settings), configured, context.catalog())
    if as_json:
        output.print_json(listing)
        return
    _print(listing)
    if listing.problem is not None:
        output.warn(listing.problem.message, listing.problem.hint)


def _print(listing: GpuListing) -> None:
    if listing.gpus:
        output.table(_COLUMNS, [_cells(row) for row in listing.gpus])
        for other in listing.others:
            output.say(f"not offered for computing: {other.gpu}: {other.reason}")
        return
    why = f" ({listing.because})" if listing.because else ""
    there = "; ".join(listing.displays) or "no display controller is seen"
    output.say(f"The KFD topology lists no GPU here{why}. On the PCI bus: {there}.")


def _cells(row: GpuRow) -> tuple[str, ...]:
    return (
        str(row.index),
        row.name or (f"such as {row.products[0]}" if row.products else "unknown"),
        row.target or "unknown",
        row.kind,
        "unknown" if row.memory_bytes is None else f"{row.memory_bytes / 2**30:.1f} GiB",
        row.pci or "unknown",
        row.render_node or "missing",
        row.zluda or "unknown",
        row.rocm or "unknown",
        "chosen" if row.chosen else row.reason,
    )
