"""The engines behind one protocol, and the one place that picks between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda_stack.errors import HostProblem

if TYPE_CHECKING:
    from zluda_stack.engines.base import Engine
    from zluda_stack.plan.types import EngineName, Plan


def engine_for(name: EngineName) -> Engine:
    """The engine `name`. Raises HostProblem for one that this version cannot run."""
    if name == "embedded":
        from zluda_stack.engines.embedded.engine import EmbeddedEngine

        return EmbeddedEngine()
    raise HostProblem(
        f"this version does not run the engine {name}",
        "`zluda-stack render --out DIR` writes its files; `--engine embedded` runs on the CPU.",
    )


def saved_plan(name: str) -> Plan | None:
    """The plan that the stack `name` was last started with; None when no readable one is kept."""
    import msgspec

    from zluda_stack import paths
    from zluda_stack.plan.types import from_json

    try:
        return from_json((paths.stack(name) / "plan.json").read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def engine_of(name: str) -> Engine:
    """The engine that runs the stack `name`.

    A stack without a readable plan is given to the embedded engine, which looks at the
    processes themselves and reports a stack that was never there as stopped.
    """
    plan = saved_plan(name)
    return engine_for("embedded" if plan is None else plan.engine)
