"""The models of a container stack that the user's own store has: given, and not fetched again.

They go through a pipe into a container and not over a mount, so that the store may be closed to
others, and the engine on another machine.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from zluda_stack import paths
from zluda_stack.engines.docker import compose
from zluda_stack.errors import StackError
from zluda_stack.models.archive import write_archive
from zluda_stack.models.store import Store
from zluda_stack.plan.containers import FETCHER
from zluda_stack.plan.types import Plan
from zluda_stack.progress import Progress

_PROGRAM = ("python", "-m", "zluda_stack")


def give_models(plan: Plan, file: Path, log: Path, progress: Progress) -> None:
    """Put the plan's models into the stack's volume, but those there or not in the user's store.

    `file` is the compose file. A failure is told through `progress` only: the stack then fetches
    the model itself, or says why it cannot.
    """
    store = Store(paths.model_store())
    if not any(service.name == FETCHER for service in plan.services):
        return
    for model in plan.catalogued:
        if store.get(model) is None:
            continue
        progress.step(f"looking for {model.name} in the stack's volume")
        if compose.run(_line(plan, file, "models", "pull", "--offline", model.name), log) == 0:
            continue
        taking = _line(plan, file, "models", "import", "-")
        problem = _stream(taking, store, model.name, log, progress)
        if problem is not None:
            progress.step(f"{model.name} could not be given to the stack: {problem}")


def _line(plan: Plan, file: Path, *arguments: str) -> tuple[str, ...]:
    # Older versions of `compose run` know no --pull; the image is here before a stack starts.
    once = ("run", "--rm", "--no-deps", "--no-TTY", FETCHER)
    return compose.command(plan.name, file, *once, *_PROGRAM, *arguments)


def _stream(
    line: tuple[str, ...], store: Store, name: str, log: Path, progress: Progress
) -> str | None:
    """Why the container that runs `line` has not taken the model; None when it has."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            (compose.docker_program(), *line[1:]),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=compose.environment(os.environ),
        )
    problem = None
    try:
        if process.stdin is not None:
            with process.stdin:
                write_archive(store, [name], process.stdin, progress)
    except StackError as error:
        problem = error.message
    except OSError:  # it ended, and its exit status says so too
        problem = "the container took no more"
    except BaseException:
        compose.end(process)
        raise
    status = process.wait()
    return problem or (None if status == 0 else f"the container ended with {status}")
