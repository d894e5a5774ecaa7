"""`doctor`: the layer that fails, why, and one fix."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, output
from zluda_stack.cli.agreement import agrees
from zluda_stack.cli.options import settings_options
from zluda_stack.errors import (
    EngineFailure,
    ExitCode,
    HostProblem,
    PlanRefused,
    StackError,
)
from zluda_stack.program import NAME, as_typed, program

if TYPE_CHECKING:
    from zluda_stack.catalog.schema import Catalog
    from zluda_stack.doctor.examine import Examination
    from zluda_stack.doctor.types import Finding, Fix
    from zluda_stack.host.facts import HostFacts
    from zluda_stack.plan.types import Plan
    from zluda_stack.settings import Configured

_ERRORS: dict[int, type[StackError]] = {
    ExitCode.REFUSED: PlanRefused,
    ExitCode.ENGINE: EngineFailure,
}
_ADD_YES = "Add --yes, or --dry-run to look."
_HUES = {"ok": "green", "warn": "yellow", "fail": "red", "skipped": "bright_black"}


@click.command()
@settings_options()
@click.option("--capture", type=click.Path(path_type=Path), help="Save the facts to FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print findings and facts as JSON.")
@click.option("--fix", is_flag=True, help="Carry out what is safe; needs no root, asks first.")
@click.option("--yes", is_flag=True, help="With --fix: do not ask.")
@click.option("--dry-run", is_flag=True, help="With --fix: print the commands, run none.")
@click.pass_context
def doctor(
    ctx: click.Context,
    flags: dict[str, object],
    capture: Path | None,
    *,
    as_json: bool,
    fix: bool,
    yes: bool,
    dry_run: bool,
) -> None:
    """Find the layer that fails on this machine, say why, and name one fix.

    The exit code is 0 when nothing fails, warnings or not. The facts that --capture saves hold
    no user name, host name or serial number; every command takes them with --host-facts, so
    they make a bug report that can be replayed.
    """
    if fix and not dry_run:
        context.refuse_replay(ctx, "doctor --fix")
    configured = context.configured(ctx, flags)
    catalog = context.catalog()
    facts, plan = _facts(ctx, configured, catalog)
    if capture is not None:
        from zluda_stack.host.capture import save

        save(facts, capture)
        output.note(f"Saved to {capture}")
    found = _examine(facts, configured, catalog, plan)
    if as_json:
        _print_json(facts, found)
        ctx.exit(0 if found.cause is None else found.cause.exit_code)
    if fix:
        ctx.exit(_fix(found, yes=yes, dry_run=dry_run))
    _print(found)
    if found.cause is not None:
        raise _as_error(found.cause)


def _facts(
    ctx: click.Context, configured: Configured, catalog: Catalog
) -> tuple[HostFacts, Plan | None]:
    """The facts as they can be handed on; those of this machine with its plan and what runs.

    What is found must be the same here and wherever the capture is replayed, so that both are
    told of the facts without personal details.
    """
    from msgspec import structs

    from zluda_stack.doctor.stack import read_stack
    from zluda_stack.host.capture import without_personal_details
    from zluda_stack.plan.resolve import resolve

    facts = context.facts(ctx, configured.settings)
    if context.is_replay(ctx):
        return facts, None
    plan = None
    try:
        plan = resolve(facts, configured, catalog)
    except PlanRefused:
        pass  # a finding, later
    else:
        facts = structs.replace(facts, stack=read_stack(plan, facts))
    return without_personal_details(facts, Path.home()), plan


def _examine(
    facts: HostFacts, configured: Configured, catalog: Catalog, plan: Plan | None
) -> Examination:
    from zluda_stack.doctor.examine import examine
    from zluda_stack.doctor.needs import build_needs

    return examine(facts, configured, catalog, build_needs, plan)


def _print_json(facts: HostFacts, found: Examination) -> None:
    from zluda_stack.doctor.report import worst

    output.print_json(
        {
            "verdict": worst(found.findings),
            "cause": None if found.cause is None else found.cause.id,
            "plan": None if found.plan is None else found.plan.headline,
            "refused": found.refusal,
            "findings": found.findings,
            "facts": facts,
        }
    )


def _print(found: Examination) -> None:
    from zluda_stack.doctor.report import details, layer_lines

    if found.plan is not None:
        output.heading(_shown(found.plan.headline))
    elif found.refusal is not None:
        output.heading(_shown(f"No plan: {found.refusal.message}."))
    output.say()
    for line in layer_lines(found.findings):
        mark = output.styled(f"{line.status.value:8}", _HUES[line.status.value])
        output.say(f"{line.layer.value:12} {mark} {_shown(line.text)}".rstrip())
    for finding in details(found.findings):
        output.say()
        _print_finding(finding)
    outlook = _outlook(found)
    if outlook:
        output.say()
        output.say(as_typed(outlook))


def _outlook(found: Examination) -> str:
    """What `up` would do where nothing fails, or what fails does not stop it; else nothing."""
    if found.goes_on_with_the_cpu:
        return "Until that is mended, `zluda-stack up` does not stop: it computes on the CPU."
    if found.cause is not None:
        return ""
    lacking = found.plan.unmet if found.plan is not None else ()
    if lacking:
        return f"Nothing fails, but `zluda-stack up` waits: {lacking[0].message}."
    return "Nothing fails: `zluda-stack up` has all it needs here."


def _print_finding(finding: Finding) -> None:
    head = f"{finding.status.value} {finding.id}:"
    output.say(f"{output.styled(head, _HUES[finding.status.value])} {_shown(finding.evidence)}")
    output.say(f"  why: {_shown(finding.reason)}")
    if finding.fix is not None:
        output.say(f"  fix: {_as_typed(finding.fix)}")
        if finding.fix.then:
            output.say(f"       {_shown(finding.fix.then)}")


def _as_typed(fix: Fix) -> str:
    """The command of `fix` with this program as the user can type it."""
    if fix.command.startswith(f"{NAME} "):
        return program() + _shown(fix.command.removeprefix(NAME))
    return _shown(fix.command)


def _shown(text: str) -> str:
    """`text` in one line, as it can be typed here, and with nothing that steers a terminal:
    facts may be those of a file that somebody sent.
    """
    return as_typed(output.printable(text.replace("\n", " ")))


def _as_error(cause: Finding) -> StackError:
    kind = _ERRORS.get(cause.exit_code, HostProblem)
    hint = "" if cause.fix is None else f"`{_as_typed(cause.fix)}`"
    return kind(f"{cause.id}: {_shown(cause.evidence)}", hint)


def _fix(found: Examination, *, yes: bool, dry_run: bool) -> int:
    """Run the safe fixes and print the others; returns the exit code for what is left."""
    from zluda_stack.doctor.fixes import argv, carry_out, left_to_the_user, safe_fixes

    safe, done = safe_fixes(found.findings), []
    for each in safe:
        if dry_run:
            output.say(shlex.join(argv(each)))
        elif yes or _agrees(each):
            output.note(f"running {_as_typed(each)}")
            carry_out(each)
            done.append(each)
    for each in left_to_the_user(found.findings):
        output.note(f"yours to run: {_as_typed(each)}")
    if not safe:
        output.note("There is nothing that --fix may do by itself.")
    left = (each for each in found.findings if each.exit_code and each.fix not in done)
    return 0 if dry_run else next((each.exit_code for each in left), 0)


def _agrees(fix: Fix) -> bool:
    command = f"`{_as_typed(fix)}`"
    return agrees(f"Run {command}?", f"--fix would run {command}", _ADD_YES)
