"""One container in the foreground: `docker run` with the user's terminal, signals and exit code."""

from __future__ import annotations

import csv
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from msgspec import structs

from zluda_stack.engines.docker import containers
from zluda_stack.engines.docker.compose import docker_program, environment
from zluda_stack.errors import HostProblem, PlanRefused
from zluda_stack.plan.adapt import DEVICES, LABEL
from zluda_stack.plan.run import Mount, RunPlan

_ON_GPU = "on-gpu"
_FOR_ON_GPU = frozenset({"ON_GPU_FRONT", "ON_GPU_TRACE"})
_IN_FRONT = frozenset({"LD_AUDIT", "LD_PRELOAD"})
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_SIGNALLED = 128


def command(plan: RunPlan) -> tuple[str, ...]:
    """The exact `docker run` of `plan`.

    With --init a signal ends a program that does not handle it, as it would outside: the
    kernel spares the first process of a container.
    """
    options = {
        "--entrypoint": (plan.entrypoint,) if plan.entrypoint else (),
        "--user": (plan.user,) if plan.user else (),
        "--userns": ("keep-id",) if plan.keep_id else (),
        "--group-add": plan.groups,
        "--device": plan.devices,
        "--runtime": (plan.runtime,) if plan.runtime else (),
        "--mount": tuple(map(_mount, plan.mounts)),
        "--tmpfs": plan.tmpfs,
        "--env": tuple(f"{key}={value}" for key, value in plan.environment.items()),
        "--workdir": (plan.folder,) if plan.folder else (),
    }
    return (
        *("docker", "run", "--rm", "--init", "--pull", "never", "--interactive"),
        *(("--tty",) if plan.terminal else ()),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges:true"),
        *(word for name, values in options.items() for value in values for word in (name, value)),
        plan.image,
        *plan.command,
    )


def require_image(plan: RunPlan) -> None:
    """Return when the engine has the image of `plan`. Raises HostProblem, UsageError."""
    _config(plan)


def require_zluda(plan: RunPlan) -> None:
    """Return when the image of `plan` starts no program without a device that ZLUDA shows.

    Its entrypoint `on-gpu` looks for one; an adapted image is asked here. Raises HostProblem for
    an image that is not there or shows no device, PlanRefused for any other image and for what
    only `on-gpu` can do.
    """
    config = _config(plan)
    if (config.get("Entrypoint") or [])[:1] == [_ON_GPU]:
        return
    if LABEL not in (config.get("Labels") or {}):
        raise PlanRefused(
            f"{plan.image} does not look for ZLUDA",
            f"`zluda-stack adapt {plan.image}` makes an image of it that does.",
        )
    if _FOR_ON_GPU & plan.environment.keys():
        raise PlanRefused(
            f"--audit and --trace need the entrypoint {_ON_GPU}, and {plan.image} has its own",
            "`zluda-stack adapt --audit` makes an image with the first; for the second mount the "
            "program into the inference image.",
        )
    _require_device(plan)


def _config(plan: RunPlan) -> dict[str, Any]:
    from docker.errors import DockerException, ImageNotFound
    from requests import RequestException

    with containers.connect() as client:
        try:
            return client.images.get(plan.image).attrs["Config"] or {}
        except ImageNotFound as error:
            raise _not_there(plan) from error
        except (DockerException, RequestException) as error:
            raise containers.no_name(plan.image, error) or containers.unreachable(error) from error


def _require_device(plan: RunPlan) -> None:
    """A program that goes on with the CPU would look as if it worked."""
    look = structs.replace(plan, entrypoint=DEVICES, command=(), terminal=False)
    told = output_of(look)
    if told.returncode != 0:
        said = (told.stderr.strip() or told.stdout.strip()).splitlines()
        raise HostProblem(
            f"no CUDA device shows up through ZLUDA in {plan.image}: {said[-1] if said else '?'}",
            "`zluda-stack doctor` checks the card and its driver.",
        )


def output_of(plan: RunPlan, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run `plan` to its end with `given` on its stdin; what it wrote and its exit code.

    Raises HostProblem when there is no docker command.
    """
    return subprocess.run(
        (docker_program(), *command(plan)[1:]),
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


def each_line(line: tuple[str, ...], take: Callable[[str], None]) -> int:
    """Run a command to its end; `take` gets each line of its stdout. Returns its exit code.

    Nothing that puts a library in front of others by LD_AUDIT or LD_PRELOAD is handed on.
    """
    program = docker_program() if line[0] == "docker" else line[0]
    kept = {key: value for key, value in os.environ.items() if key not in _IN_FRONT}
    with subprocess.Popen(
        (program, *line[1:]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=kept
    ) as process:
        for raw in process.stdout or ():
            take(raw.decode(errors="replace").rstrip("\n"))
        return exit_code(process.wait())


def image_facts(image: str) -> dict[str, object]:
    """What a report says of `image`: its id, its digests in registries, its labels."""
    with containers.connect() as client:
        raw = client.images.get(image).attrs
    return {
        "id": raw["Id"],
        "digests": raw.get("RepoDigests") or [],
        "labels": raw["Config"].get("Labels") or {},
    }


def replace_this_process(plan: RunPlan) -> None:
    """Become `docker run`, which hands on signals and ends with the program's exit code.

    Returns never. Raises HostProblem when there is no docker command.
    """
    program = docker_program()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, (program, *command(plan)[1:]))  # noqa: S606 -- there is no shell to mind


def run(plan: RunPlan) -> int:
    """Run `plan` to its end; returns its exit code, 128 + n where the signal n ended it.

    Signals that this process gets are handed on. Raises HostProblem when there is no docker
    command.
    """
    return alive(command(plan), 0, None)


def alive(line: tuple[str, ...], every: int, still: Callable[[int], None] | None) -> int:
    """As `run`, for a docker command; `still` is told every so many seconds how many it were."""
    began = time.monotonic()
    with (
        subprocess.Popen((docker_program(), *line[1:]), env=environment(os.environ)) as process,
        _handing_on_signals(process),
    ):
        while still is not None:
            try:
                return exit_code(process.wait(every))
            except subprocess.TimeoutExpired:
                still(round(time.monotonic() - began))
        return exit_code(process.wait())


def exit_code(status: int) -> int:
    """The status of a process, negative for a signal, as shells spell it."""
    return status if status >= 0 else _SIGNALLED - status


@contextmanager
def _handing_on_signals(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Send `process` what this one is sent; Ctrl-C of a terminal reaches both anyway."""

    def hand_on(number: int, _: FrameType | None) -> None:
        process.send_signal(number)

    handlers = dict.fromkeys(_FORWARDED, hand_on)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    from_terminal = sys.stdin is not None and sys.stdin.isatty()
    before[signal.SIGINT] = signal.signal(
        signal.SIGINT, signal.SIG_IGN if from_terminal else hand_on
    )
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _mount(mount: Mount) -> str:
    """The value of --mount, which is a line of CSV: paths may hold commas and quotes."""
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields + ["readonly"] * mount.read_only)
    return line.getvalue()


def _not_there(plan: RunPlan) -> HostProblem:
    if plan.build is None:
        return HostProblem(
            f"the engine has no image {plan.image}", f"`docker pull {plan.image}` fetches it."
        )
    target = f" --gpu {plan.target}" if plan.target else ""
    return HostProblem(
        f"the image {plan.image} is not built yet",
        f"`zluda-stack build{target} {plan.build}` builds it, and says before what that takes; "
        "with --registry it is pulled.",
    )
