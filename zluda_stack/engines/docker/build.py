"""Build an image with BuildKit: one run and one log, finished steps kept for the next."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from zluda_stack.engines import logs
from zluda_stack.engines.docker import logged
from zluda_stack.engines.docker.progress import BuildOutput
from zluda_stack.errors import EngineFailure, HostProblem, StackError
from zluda_stack.plan.types import ImagePlan
from zluda_stack.progress import Progress
from zluda_stack.render.labels import labels

# What a full disk and a missing plugin look like in BuildKit's output.
_DISK_FULL = "no space left on device"
_NO_BUILDX = ("is not a docker command", "unknown flag: --progress")
FREE_SPACE_HINT = (
    "`docker buildx prune` removes build caches, `docker image prune` images without a name, "
    "`docker system df` shows what uses the space."
)
_NONE: Mapping[str, str] = MappingProxyType({})


def command(image: ImagePlan, project: Path, stages: Mapping[str, str] = _NONE) -> tuple[str, ...]:
    """The BuildKit run that makes `image` from the rendered files in `project`.

    `stages` are build stages that need not be built, by name: what a registry has of them, as
    REPOSITORY@DIGEST.
    """
    ready = {name: f"docker-image://{where}" for name, where in stages.items()}
    options = {
        "--build-arg": image.arguments,
        "--build-context": image.contexts | ready,
        "--label": labels(image),
    }
    given = ((name, f"{key}={text}") for name, of in options.items() for key, text in of.items())
    return (
        *("docker", "buildx", "build", "--progress", "plain", "--load"),
        *("--file", str(project / "images" / image.name / "Dockerfile")),
        *("--target", image.name, "--tag", image.tag),
        *(word for pair in given for word in pair),
        str(project),
    )


def build(
    image: ImagePlan, command_line: tuple[str, ...], log_folder: Path, progress: Progress
) -> Path:
    """Build `image` by `command_line`; returns the log.

    BuildKit builds what changed and keeps every finished step, whatever ends the run. Raises
    EngineFailure with the failed step, its last lines and the log's path; HostProblem.
    """
    log = log_folder / f"build-{image.name}.log"
    progress.step(f"building the image {image.name}")
    output = BuildOutput(image.name)
    if logged.run(command_line, log, output, progress) != 0:
        raise _failure(image, output, log)
    return log


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
