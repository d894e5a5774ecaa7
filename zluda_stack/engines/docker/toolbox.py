"""The toolbox's containers that are not a user's own: a converter at work, and what it has."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from msgspec import Struct

from zluda_stack.engines.docker import look, run
from zluda_stack.engines.docker.compose import docker_program
from zluda_stack.errors import EngineFailure
from zluda_stack.plan.run import RunPlan
from zluda_stack.plan.toolbox import TOOLS, TOOLS_FILE

if TYPE_CHECKING:
    from docker import DockerClient


class Installed(Struct, frozen=True, kw_only=True):
    """A tool of the toolbox; `version` is None where the image does not have it."""

    name: str
    version: str | None
    title: str


class Output(Struct, frozen=True, kw_only=True):
    """What a converter wrote: the result, and its words about it."""

    result: bytes
    told: str


def convert(plan: RunPlan, source: bytes) -> Output:
    """Run the converter `plan` with `source` on its stdin.

    Raises EngineFailure with its last words when it fails, HostProblem when there is no docker
    command.
    """
    done = subprocess.run(
        (docker_program(), *run.command(plan)[1:]), input=source, capture_output=True, check=False
    )
    told = done.stderr.decode(errors="replace")
    if done.returncode != 0:
        said = told.strip().splitlines() or [f"exit code {done.returncode}"]
        raise EngineFailure(
            f"nothing was converted: {said[-1].strip()}",
            "`zluda-stack toolbox --list` says which converters the toolbox has.",
        )
    return Output(result=done.stdout, told=told)


def installed(client: DockerClient, image: str) -> tuple[Installed, ...]:
    """The tools of `image` as it lists them itself. Raises EngineFailure when it has no list."""
    versions = _versions(client, image)
    if not versions:
        raise EngineFailure(
            f"{image} does not tell which tools it has", "`zluda-stack build toolbox` makes one."
        )
    return tuple(
        Installed(name=name, version=versions.get(name) or None, title=tool.title)
        for name, tool in TOOLS.items()
    )


def lacks(client: DockerClient, image: str, tool: str) -> bool:
    """True when `image` says that it was built without `tool`; False when it says nothing of it."""
    return _versions(client, image).get(tool) == ""


def _versions(client: DockerClient, image: str) -> dict[str, str]:
    """The version of each tool as `image` lists them, empty for one that it does not have."""
    lines = look.read_file(client, image, TOOLS_FILE).splitlines()
    return dict(line.partition("\t")[::2] for line in lines)
