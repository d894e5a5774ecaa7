"""What ZLUDA's offline compiler makes of the PTX in a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from msgspec import Struct, structs

from zluda_stack.check.facts import FileFacts, Uncompiled
from zluda_stack.errors import StackError
from zluda_stack.gates import ptx as gate

_SECONDS = 1800


class Compiler(Struct, frozen=True):
    """ZLUDA's `zoc` as a command, and the gfx target to compile for."""

    command: tuple[str, ...]
    target: str
    jobs: int


def compiled(
    compiler: Compiler, path: Path, facts: FileFacts, progress: Callable[[str], None]
) -> FileFacts:
    """`facts` with every PTX module of the file at `path` that does not fully compile.

    As at run time, what the parser does not know costs its kernel only. Raises HostProblem when
    the compiler cannot be run.
    """
    if not facts.ptx or facts.problem is not None:
        return facts
    try:
        found = gate.check(
            [path],
            compiler=compiler.command,
            target=compiler.target,
            jobs=compiler.jobs,
            seconds=_SECONDS,
            budget=0,
            progress=progress,
        )
    except StackError as error:
        if not str(error.message).startswith(str(path)):
            raise
        return structs.replace(facts, problem=error.message.replace(str(path), facts.name))
    base = PurePosixPath(facts.name).name
    failed = tuple(
        Uncompiled(
            module=one.subject.replace(path.name, base, 1),
            problem=one.problem,
            kernels=one.detail,
        )
        for one in found.findings
    )
    return structs.replace(facts, compiled_for=compiler.target, uncompiled=failed)


def options(command: Sequence[str]) -> tuple[str, ...]:
    """The compiler's command with what makes it do as ZLUDA does at run time."""
    return (*command, "--ignore-errors")
