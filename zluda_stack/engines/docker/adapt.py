"""Makes a derived image in which CUDA programs find ZLUDA, and asks its loader whether they do."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from zluda_stack import paths
from zluda_stack.engines.docker import build, look, run
from zluda_stack.errors import EngineFailure
from zluda_stack.plan.adapt import ADDED, DEVICES, LIBRARIES, Adaptation
from zluda_stack.plan.run import ZLUDA, RunPlan
from zluda_stack.plan.types import ImagePlan
from zluda_stack.progress import Progress
from zluda_stack.render.adapt import COLLECT, render_adaptation

if TYPE_CHECKING:
    from docker import DockerClient

_LOADER = "/lib64/ld-linux-x86-64.so.2"
# What a program loads by name, and what ZLUDA's libraries load when a program asks for them.
_LOADED = (
    *(f"{ZLUDA}/{name}" for name in ("libcuda.so", "libcublas.so", "libcublasLt.so")),
    *(f"{LIBRARIES}/{name}" for name in ("libamdhip64.so", "librocblas.so", "libhipblaslt.so")),
    DEVICES,
)
_LOST = ("not found", "error while loading", "cannot open shared object")


class Adapted(Struct, frozen=True, kw_only=True):
    """The image that was made; `added` are libraries of others that it lacked."""

    tag: str
    added: tuple[str, ...]
    log: str


def needed_glibc(image: str) -> str:
    """The oldest glibc that the libraries of the inference image `image` can do with.

    Raises EngineFailure when it does not tell.
    """
    script = (paths.images() / COLLECT).read_text()
    told = run.output_of(
        RunPlan(image=image, command=("-s", "needs"), entrypoint="bash"), given=script
    )
    key, _, version = told.stdout.strip().partition("=")
    if told.returncode != 0 or key != "glibc" or not version:
        raise EngineFailure(
            f"{image} does not tell what its libraries need: {told.stderr.strip()[-500:]}",
            "Build it again: `zluda-stack build inference`.",
        )
    return version


def make(
    client: DockerClient, adaptation: Adaptation, inference: ImagePlan, progress: Progress
) -> Adapted:
    """Build the adapted image and let its own loader find every library.

    Raises EngineFailure, also for a library that is not found, and HostProblem.
    """
    named = structs.replace(inference, name="adapted", tag=adaptation.tag)
    with tempfile.TemporaryDirectory(prefix="zluda-adapt-") as temporary:
        context = Path(temporary)
        (context / "Dockerfile").write_text(render_adaptation(adaptation))
        shutil.copy(paths.images() / COLLECT, context / "collect")
        log = build.build(named, command(adaptation.tag, context), paths.adapted(), progress)
    progress.step("asking its loader for every library")
    lost = list(_lost(adaptation.tag))
    if lost:
        raise EngineFailure(
            f"{adaptation.tag} was built, and its loader complains: {lost[0]}",
            f"The image is kept to look into; the log: {log}",
        )
    added = look.read_file(client, adaptation.tag, ADDED).split()
    return Adapted(tag=adaptation.tag, added=tuple(added), log=str(log))


def command(tag: str, context: Path) -> tuple[str, ...]:
    """The BuildKit run that makes `tag` from the files in `context`."""
    options = ("--progress", "plain", "--load", "--tag", tag)
    return ("docker", "buildx", "build", *options, str(context))


def _lost(tag: str) -> Iterator[str]:
    """What the loader of the image `tag` says of libraries that it does not find, line by line.

    The loader is a program, so the image needs no shell and no ldd.
    """
    for path in _LOADED:
        plan = RunPlan(image=tag, command=("--list", path), entrypoint=_LOADER)
        told = run.output_of(plan)
        lines = (told.stdout + told.stderr).splitlines()
        yield from (line.strip() for line in lines if any(sign in line for sign in _LOST))
        if told.returncode != 0 and not lines:
            yield f"{path}: exit code {told.returncode}"
