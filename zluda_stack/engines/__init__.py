"""The engines behind one protocol, and the one place that picks between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda_stack.errors import HostProblem

if TYPE_CHECKING:
    from zluda_stack.engines.base import Engine
    from zluda_stack.plan.types import EngineName, Plan


def engine_for(name: EngineName) -> Engine:
    """The engine `name`."""
    if name == "embedded":
        from zluda_stack.engines.embedded.engine import EmbeddedEngine

        return EmbeddedEngine()
    from zluda_stack.engines.docker.engine import DockerEngine

    return DockerEngine()


def saved_plan(name: str) -> Plan | None:
    """The plan that the stack `name` was last started with.

    None when none is kept, or another version wrote it. Raises OSError when it may not be read.
    """
    import msgspec

    from zluda_stack import paths
    from zluda_stack.plan.types import from_json

    try:
        return from_json((paths.stack(name) / "plan.json").read_bytes())
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def stack_names() -> list[str]:
    """The names of all stacks of this user that were ever started, in order."""
    import msgspec

    from zluda_stack import paths
    from zluda_stack.files import children
    from zluda_stack.settings import Name

    def is_name(text: str) -> bool:
        try:
            return bool(msgspec.convert(text, Name))
        except msgspec.ValidationError:
            return False

    places = (place for place in children(paths.stacks()) if place.is_dir())
    return [place.name for place in places if is_name(place.name)]


def stacks_serving(model: str) -> list[str]:
    """The names of the stacks that run with the catalogue's `model` out of the model store.

    A container stack has a copy of its own.
    """
    from zluda_stack.engines.base import State

    def serves(name: str) -> bool:
        plan = saved_plan(name)
        if plan is None or plan.engine != "embedded" or plan.model.catalogued is None:
            return False
        runs = engine_for(plan.engine).status(name).state is not State.STOPPED
        return runs and plan.model.catalogued.name == model

    return [name for name in stack_names() if serves(name)]


def engine_of(name: str) -> Engine:
    """The engine that runs the stack `name`.

    A stack without a readable plan goes by the mark that the docker engine leaves, and else to
    the embedded engine, which looks at the processes themselves and reports a stack that was
    never there as stopped.
    """
    from zluda_stack import paths

    plan = saved_plan(name)
    if plan is not None:
        return engine_for(plan.engine)
    from zluda_stack.engines.docker.state import StackFolder

    return engine_for("docker" if StackFolder(paths.stack(name)).mark.exists() else "embedded")


def require_same_engine(plan: Plan) -> None:
    """Raises HostProblem when the stack of `plan` runs with another engine now.

    Each engine sees its own processes only; two would fight for the port and the state.
    """
    from zluda_stack.engines.base import State
    from zluda_stack.program import command

    before = saved_plan(plan.name)
    if before is None or before.engine == plan.engine:
        return
    if engine_for(before.engine).status(plan.name).state is not State.STOPPED:
        raise HostProblem(
            f"the stack {plan.name} runs with the {before.engine} engine",
            f"`{command('down', plan.name)}` stops it; or choose another --name.",
        )
