"""`gpus`: the cards of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, output

if TYPE_CHECKING:
    from zluda_stack.catalog.schema import Catalog
    from zluda_stack.host.facts import GpuFacts


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the GPUs as JSON.")
@click.pass_context
def gpus(ctx: click.Context, *, as_json: bool) -> None:
    """List the GPUs that the amdgpu driver's KFD topology knows, and whether ZLUDA serves them."""
    facts = context.facts(ctx, context.configured(ctx, {}).settings)
    if as_json:
        output.print_json(facts.gpus)
        return
    if not facts.gpus:
        output.say("The KFD topology lists no GPU on this machine.")
        return
    catalog = context.catalog()
    columns = ("#", "target", "PCI address", "render node", "memory", "ZLUDA")
    output.table(columns, [_gpu_row(i, gpu, catalog) for i, gpu in enumerate(facts.gpus)])


def _gpu_row(index: int, gpu: GpuFacts, catalog: Catalog) -> tuple[str, ...]:
    known = catalog.gpus.get(gpu.gfx_target or "")
    return (
        str(index),
        gpu.gfx_target or "unknown",
        gpu.pci or "unknown",
        gpu.render_node or "missing",
        _bytes(gpu.vram_bytes),
        known.zluda.value if known else "unknown",
    )


def _bytes(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 2**30:.1f} GiB"
