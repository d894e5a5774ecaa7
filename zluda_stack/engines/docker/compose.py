"""The `docker compose` command lines of a stack, and what runs them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from zluda_stack import program
from zluda_stack.engines.docker.state import StackFolder, read_plan
from zluda_stack.errors import EngineFailure, HostProblem
from zluda_stack.render.compose import compose_path

# Compose prefers the shell's variables over its .env file, and the plan has decided already.
_DECIDED = ("ZLUDA_STACK_", "HOST_", "COMPOSE_")
_END_SECONDS = 10
# CONTAINER-N  | LINE, as `docker compose logs` prints it.
_PREFIX = re.compile(r"^([a-z0-9_-]+)-\d+ +\| ?")


def project_name(stack: str) -> str:
    """The Compose project of the stack named `stack`."""
    return f"zluda-stack-{stack}"


def compose_file(folder: StackFolder) -> Path | None:
    """The compose file of the stack as it was rendered last; None when there is none.

    The self-test has one of its own beside it.
    """
    plan = read_plan(folder)
    file = None if plan is None else folder.project / compose_path(plan)
    return file if file is not None and file.is_file() else None


def command(stack: str, file: Path | None, *arguments: str) -> tuple[str, ...]:
    """`docker compose` on this stack; without `file`, Compose knows it by its labels only."""
    name = ("--project-name", project_name(stack))
    own: tuple[str, ...] = ()
    if file is not None:
        # Named, so that no other .env is meant, whatever folder the user is in.
        own = ("--file", str(file), "--env-file", str(file.with_name(".env")))
    return ("docker", "compose", *name, *own, "--ansi", "never", *arguments)


def up(stack: str, file: Path, *, offline: bool = False) -> tuple[str, ...]:
    """Create what is missing or changed, start it, and stop what no longer belongs to it.

    An image that is missing is pulled, unless `offline`.
    """
    pull = ("--pull", "never") if offline else ()
    return command(stack, file, "up", "--detach", "--no-build", "--remove-orphans", *pull)


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables for Compose: those of the user, without what the plan has decided."""
    return {key: value for key, value in environ.items() if not key.startswith(_DECIDED)}


@contextmanager
def running(command_line: tuple[str, ...], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command in the background, its output in `log`; ended with the `with` block.

    It has a session of its own: Ctrl-C reaches this program only, which then decides.
    Raises HostProblem when there is no docker command.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            (docker_program(), *command_line[1:]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=environment(os.environ),
        )
    try:
        yield process
    finally:
        end(process)


def run(command_line: tuple[str, ...], log: Path) -> int:
    """Run the command to its end, its output in `log`; returns its exit status."""
    with running(command_line, log) as process:
        return process.wait()


def act(stack: str, folder: StackFolder, *arguments: str) -> int:
    """Run `docker compose ARGUMENTS` on the stack's rendered project; returns its exit status."""
    return run(command(stack, compose_file(folder), *arguments), folder.compose_log)


def down(stack: str, folder: StackFolder, *options: str) -> None:
    """Remove the stack's containers and network. Raises EngineFailure when they stay."""
    if act(stack, folder, "down", "--remove-orphans", *options) != 0:
        said = folder.compose_log.read_text(errors="replace").strip()
        raise EngineFailure(
            f"docker compose could not stop the stack {stack}:\n{said}",
            f"`docker ps` shows what is left; `{program.command('down', stack)}` tries again.",
        )
    folder.mark.unlink(missing_ok=True)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a docker command to stop as its user would with Ctrl-C, and make sure that it does."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def docker_program() -> str:
    """The docker command. Raises HostProblem when it is not on PATH."""
    program = shutil.which("docker")
    if program is None:
        raise HostProblem(
            "the docker command is not installed",
            "Install Docker Engine with the compose and buildx plugins.",
        )
    return program


def logs(
    stack: str, folder: StackFolder, service: str | None, tail: int, *, follow: bool
) -> Iterator[str]:
    """What the services wrote, line by line, as it comes; `service: line` without `service`."""
    of = ("--no-log-prefix", service) if service is not None else ()
    options = ("--no-color", "--tail", str(tail), *(("--follow",) if follow else ()))
    line = command(stack, compose_file(folder), "logs", *options, *of)
    with subprocess.Popen(
        (docker_program(), *line[1:]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=environment(os.environ),
    ) as process:
        try:
            for raw in process.stdout or ():
                # Compose 2.26 clears the line even where there is no terminal.
                text = raw.decode(errors="replace").rstrip("\n").replace("\x1b[2K", "")
                yield text if service is not None else _PREFIX.sub(r"\1: ", text, count=1)
        finally:
            end(process)
