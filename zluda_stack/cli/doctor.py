"""`doctor`: what this machine is, and what a plan would make of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, output
from zluda_stack.program import as_typed

if TYPE_CHECKING:
    from zluda_stack.host.facts import DeviceNode, HostFacts


@click.command()
@click.option("--capture", type=click.Path(path_type=Path), help="Save the facts to FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON.")
@click.pass_context
def doctor(ctx: click.Context, capture: Path | None, *, as_json: bool) -> None:
    """Show what was found on this machine, and whether `up` would work.

    The facts that --capture saves hold no user name, host name or serial number; every command
    takes them with --host-facts, so they make a bug report that can be replayed.
    """
    from zluda_stack.host.capture import save, without_personal_details

    configured = context.configured(ctx, {})
    facts = context.facts(ctx, configured.settings)
    shareable = without_personal_details(facts, Path.home())
    if capture is not None:
        save(shareable, capture)
        output.note(f"Saved to {capture}")
    if as_json:
        output.print_json(shareable)
        return
    from zluda_stack.plan.resolve import require_runnable, resolve

    output.table(("fact", "value"), _rows(facts))
    plan = resolve(facts, configured, context.catalog())
    output.say()
    output.heading(plan.headline)
    for notice in plan.warnings:
        output.warn(notice.message, notice.hint)
    require_runnable(plan)
    output.say(as_typed("`zluda-stack up` has all it needs here."))


def _rows(facts: HostFacts) -> list[tuple[str, str]]:
    docker = facts.docker
    embedded = facts.embedded
    return [
        ("system", f"{facts.system} {facts.kernel} {facts.machine}{' (WSL)' * facts.wsl}"),
        ("cores, memory", f"{facts.cpu_count}, {_bytes(facts.memory_bytes)}"),
        ("/dev/kfd", _node(facts.kfd)),
        ("render nodes", ", ".join(_node(node) for node in facts.render_nodes) or "none"),
        ("GPUs", ", ".join(gpu.gfx_target or "unknown" for gpu in facts.gpus) or "none"),
        ("docker", docker.problem or f"engine {docker.engine_version}, context {docker.context}"),
        ("docker compose", docker.compose_version or "none"),
        (
            "embedded engine",
            f"lacks {', '.join(embedded.missing)}" if embedded.missing else "ready",
        ),
    ]


def _node(node: DeviceNode | None) -> str:
    if node is None:
        return "none"
    return f"{node.path} (gid {node.gid}{'' if node.accessible else ', no access'})"


def _bytes(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 2**30:.1f} GiB"
