"""Build images with BuildKit: one run and one log for each, finished steps kept for the next."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from zluda_stack.engines import logs
from zluda_stack.engines.common import PROGRESS_SECONDS
from zluda_stack.engines.docker import compose
from zluda_stack.engines.docker.progress import BuildOutput
from zluda_stack.errors import EngineFailure, HostProblem, StackError
from zluda_stack.plan.types import ImagePlan
from zluda_stack.progress import Progress

_POLL_SECONDS = 0.2
# What a full disk and a missing plugin look like in BuildKit's output.
_DISK_FULL = "no space left on device"
_NO_BUILDX = ("is not a docker command", "unknown flag: --progress")
FREE_SPACE_HINT = (
    "`docker buildx prune` removes build caches, `docker image prune` images without a name, "
    "`docker system df` shows what uses the space."
)


def command(image: ImagePlan, project: Path) -> tuple[str, ...]:
    """The BuildKit run that makes `image` from the rendered files in `project`."""
    arguments = (("--build-arg", f"{key}={value}") for key, value in image.arguments.items())
    contexts = (("--build-context", f"{key}={value}") for key, value in image.contexts.items())
    return (
        *("docker", "buildx", "build", "--progress", "plain", "--load"),
        *("--file", str(project / "images" / image.name / "Dockerfile")),
        *("--target", image.name, "--tag", image.tag),
        *itertools.chain.from_iterable((*arguments, *contexts)),
        str(project),
    )


def build(
    images: Iterable[ImagePlan], project: Path, log_folder: Path, progress: Progress
) -> tuple[Path, ...]:
    """Build `images` one after the other; returns their logs.

    BuildKit builds what changed and keeps every finished step, whatever ends the run. Raises
    EngineFailure with the failed step, its last lines and the log's path; HostProblem.
    """
    written = []
    log_folder.mkdir(parents=True, exist_ok=True)
    for image in images:
        log = log_folder / f"build-{image.name}.log"
        if log.exists():
            log.replace(logs.previous(log))
        progress.step(f"building the image {image.name}")
        follower = logs.Follower(log, lines=0)  # before the log exists, so that it misses nothing
        with compose.running(command(image, project), log) as process:
            output = _follow(image, process, follower, progress)
        if process.returncode != 0:
            raise _failure(image, output, log)
        written.append(log)
    return tuple(written)


def _follow(
    image: ImagePlan,
    process: subprocess.Popen[bytes],
    follower: logs.Follower,
    progress: Progress,
) -> BuildOutput:
    output = BuildOutput()
    began = told = time.monotonic()
    ended = False
    while not ended:
        ended = process.poll() is not None  # before the last read, which then reads all
        for line in follower.read():
            output.feed(line)
        now = time.monotonic()
        step = output.running
        if step is not None and now - told >= PROGRESS_SECONDS:
            told = now
            last = f": {step.output[-1]}" if step.output else ""
            progress.step(f"{image.name} {step.title} ... {int(now - began)} s{last}")
        if not ended:
            time.sleep(_POLL_SECONDS)
    return output


def _failure(image: ImagePlan, output: BuildOutput, log: Path) -> StackError:
    said = output.error or "\n".join(logs.tail(log, 3)) or "docker buildx said nothing"
    tail = "\n".join(output.failed.output) if output.failed else ""
    if _DISK_FULL in said or _DISK_FULL in tail:
        return HostProblem(
            f"the disk filled up while the image {image.name} was built",
            f"{FREE_SPACE_HINT} The log: {log}",
        )
    if any(sign in said for sign in _NO_BUILDX):
        return HostProblem(
            f"`docker buildx` does not work: {said}", "Install the docker-buildx-plugin package."
        )
    where = f" at {output.failed.title}" if output.failed else ""
    return EngineFailure(
        f"the image {image.name} was not built{where}: {said}" + (f"\n{tail}" if tail else ""),
        f"The whole log: {log}. What was built before that step is kept for the next run.",
    )
