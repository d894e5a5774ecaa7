"""`zluda-stack verify`: is it right what the card computes, and does the stack compute on it?"""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import structs

from zluda_stack import keys
from zluda_stack.cli import context, output
from zluda_stack.cli.options import ImageName, dry_run_option, json_option, settings_options
from zluda_stack.cli.run import card_plan, ready, wish_for
from zluda_stack.errors import EngineFailure, ExitCode, HostProblem, UsageError
from zluda_stack.program import as_typed, command

if TYPE_CHECKING:
    from zluda_stack.plan.types import Plan
    from zluda_stack.settings import Profile
    from zluda_stack.verify.programs import Program
    from zluda_stack.verify.proof import Proof, StackProof, Way

_FOLDER = "/opt/selftest"
_SCRIPT = f"{_FOLDER}/selftest"
_LOG_LINES = 200_000
# How the programs in a profile's image reach the card.
_WAYS: dict[Profile, Way] = {"translated": "zluda", "native": "rocm"}


@click.command()
@settings_options("name", "profile", "gpu", "passthrough", "hsa_override")
@click.option("--native-cuda", is_flag=True, help="On a GPU of NVIDIA's, by its own driver.")
@click.option(
    "--programs", metavar="DIR", help="With --native-cuda: the programs, else taken of their image."
)
@click.option(
    "--image",
    type=ImageName(),
    metavar="IMAGE",
    help="An image with the programs, not the planned one.",
)
@dry_run_option
@json_option
@click.pass_context
def verify(
    ctx: click.Context,
    flags: dict[str, object],
    *,
    native_cuda: bool,
    programs: str | None,
    image: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Prove that the card computes right, and that the running stack computes on it.

    Small CUDA or HIP programs compare their results with the CPU's; then the stack, when it
    runs, is asked a question, and its log says where it computed. The exit code is 0 only when
    all of it was computed by the GPU and is right; 4 without a GPU, 5 for anything else.
    """
    from zluda_stack.verify.proof import Proof

    if not native_cuda and programs is not None:
        raise UsageError("--programs is for --native-cuda", "Leave it out, or add --native-cuda.")
    way: Way = "native-cuda"
    line: tuple[str, ...]
    with tempfile.TemporaryDirectory(prefix="zluda-verify-") as scratch:
        if native_cuda:
            context.refuse_replay(ctx, "verify --native-cuda")
            line = (str(_programs_here(ctx, flags, programs, image, Path(scratch))),)
        else:
            way, line = _in_container(ctx, flags, image, dry_run=dry_run)
        if dry_run:
            output.say(shlex.join(line))
            return
        found = _run_programs(line, show=not as_json)
    stack = _stack(context.stack_name(flags), show=not as_json)
    _conclude(Proof(way=way, programs=found, stack=stack), as_json=as_json)


def _in_container(
    ctx: click.Context, flags: dict[str, object], image: str | None, *, dry_run: bool
) -> tuple[Way, tuple[str, ...]]:
    """The command line of the programs on the chosen card, and the way that the profile computes.

    Raises PlanRefused, HostProblem.
    """
    from zluda_stack.engines.docker.run import command as docker_run
    from zluda_stack.plan.run import run_plan

    profile = _profile(ctx, flags)
    wish = structs.replace(wish_for((_SCRIPT,)), folder=None, terminal=False, image=image)
    planned = run_plan(card_plan(ctx, flags, profile), wish)
    if not dry_run:
        ready(ctx, "verify", planned)
    return _WAYS[profile], docker_run(planned)


def _profile(ctx: click.Context, flags: dict[str, object]) -> Profile:
    """The profile of the settings. Raises UsageError for one whose image has no programs."""
    profile = context.configured(ctx, flags).settings.profile
    if profile not in _WAYS:
        raise UsageError(
            f"the image of the {profile} profile holds no self-test programs",
            "Those of `verify --profile native` run on the same card by the same ROCm.",
        )
    return profile


def _programs_here(
    ctx: click.Context,
    flags: dict[str, object],
    given: str | None,
    image: str | None,
    scratch: Path,
) -> Path:
    """The script of the programs in the folder `given`, or copied out of their image.

    NVIDIA's driver and libcublas are this machine's. Raises UsageError, HostProblem.
    """
    if given is None:
        from zluda_stack.engines.docker import containers, look

        with containers.connect() as client:
            look.copy_out(client, image or _selftest_tag(ctx, flags), _FOLDER, scratch)
    script = (Path(given) if given is not None else scratch / Path(_FOLDER).name) / "selftest"
    if not os.access(script, os.X_OK):
        raise UsageError(
            f"there is no program {script}", f"Give a copy of {_FOLDER}, as the image has it."
        )
    return script.absolute()


def _selftest_tag(ctx: click.Context, flags: dict[str, object]) -> str:
    """The tag of the image with the programs alone."""
    from zluda_stack.plan.reference import gpu_plans
    from zluda_stack.plan.selftest import selftest_image

    settings = context.configured(ctx, flags).settings
    return selftest_image(gpu_plans(context.catalog(), settings)[0]).tag


def _run_programs(line: tuple[str, ...], *, show: bool) -> tuple[Program, ...]:
    """What each program told; raises HostProblem where there is no device."""
    from zluda_stack.engines.docker.run import each_line
    from zluda_stack.verify import programs

    found: list[Program] = []

    def take(text: str) -> None:
        program = programs.read(text)
        if program is None:
            output.note(text)
            return
        found.append(program)
        if show:
            output.say(_told(program))

    output.note("running the self-test programs; the first time, their kernels are compiled")
    code = each_line(line, take)
    told = programs.without_summary(found)
    if code == ExitCode.HOST or (told and all(map(programs.found_no_device, told))):
        raise HostProblem(
            "nothing was computed: there is no device", "`zluda-stack doctor` checks the card."
        )
    return told


def _told(program: Program) -> str:
    mark = "✓" if program.ok else "✗"
    where = f" on {program.device}" if program.device else ""
    return f"{mark} {program.test}{where}: {program.detail}"


def _stack(name: str, *, show: bool) -> StackProof | None:
    """The proof of the running stack `name`; None when it is not healthy and running."""
    from zluda_stack.engines import engine_of, saved_plan
    from zluda_stack.verify.first_completion import Computing, ask, read_log
    from zluda_stack.verify.proof import StackProof

    plan, engine = saved_plan(name), engine_of(name)
    if plan is None or not engine.status(name).healthy:
        return None
    servers: dict[str, Computing] = {}
    for server in _servers(plan):
        servers[server] = read_log(engine.logs(name, server, _LOG_LINES, follow=False))
    with output.waiting("asking the running stack a question"):
        completion = ask(plan.endpoint, keys.ensure_key(name), plan.model.name)
    if show:
        output.say(f"{'✓' if completion.right else '✗'} the stack said: {completion.text[:200]}")
    return StackProof(
        name=name,
        model=plan.model.name,
        servers=servers,
        completion=completion,
        on_cpu=plan.gpu is None,
    )


def _servers(plan: Plan) -> list[str]:
    """The services that have a card."""
    return [service.name for service in plan.services if service.devices or service.runtime]


def _conclude(proof: Proof, *, as_json: bool) -> None:
    """Print what is proven and what not. Raises EngineFailure unless all is right."""
    from zluda_stack.verify.proof import does_not_prove, faults, proves

    wrong = faults(proof)
    if as_json:
        told = {"proves": proves(proof), "does_not_prove": does_not_prove(proof), "faults": wrong}
        output.print_json({**told, "proof": proof, "device": proof.device, "ok": not wrong})
        if wrong:
            click.get_current_context().exit(ExitCode.ENGINE)
        return
    output.say()
    for sentence in proves(proof):
        output.say(f"proven: {sentence}")
    for sentence in does_not_prove(proof):
        output.say(f"not proven: {as_typed(sentence)}")
    if wrong:
        raise EngineFailure(
            f"{wrong[0]}" + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""),
            f"`{command('logs', proof.stack.name)}` shows more.{_other_versions(proof.stack)}"
            if proof.stack is not None
            else "`zluda-stack run --trace` records what a program asks of CUDA.",
        )


def _other_versions(stack: StackProof) -> str:
    """What else there is for a stack that computes wrongly on a card."""
    from zluda_stack.engines import saved_plan
    from zluda_stack.plan.combination import other_versions

    plan = saved_plan(stack.name)
    other = None if plan is None else other_versions(context.catalog(), plan)
    return "" if other is None else f" {as_typed(other)}"
