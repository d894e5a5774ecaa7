"""Carry out the fixes that are safe: this user's own settings, models and Docker context."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterable

from zluda_stack.doctor.types import Finding, Fix, Status
from zluda_stack.errors import HostProblem
from zluda_stack.program import NAME

_WRONG = (Status.FAIL, Status.WARN)


def safe_fixes(findings: Iterable[Finding]) -> tuple[Fix, ...]:
    """The fixes that `doctor --fix` may run, each once, those of the lowest layer first."""
    wanted = (each.fix for each in findings if each.status in _WRONG)
    return tuple(dict.fromkeys(fix for fix in wanted if fix is not None and fix.safe))


def left_to_the_user(findings: Iterable[Finding]) -> tuple[Fix, ...]:
    """The fixes that need root, a shell or a decision: printed, never run."""
    wanted = (each.fix for each in findings if each.status in _WRONG)
    return tuple(dict.fromkeys(fix for fix in wanted if fix is not None and not fix.safe))


def argv(fix: Fix) -> tuple[str, ...]:
    """The words of a safe fix; zluda-stack itself as this very installation of it."""
    words = shlex.split(fix.command)
    own = (sys.executable, "-m", "zluda_stack")
    return (*own, *words[1:]) if words[0] == NAME else tuple(words)


def carry_out(fix: Fix) -> None:
    """Run a safe fix. Raises HostProblem when it does not do what it should."""
    words = argv(fix)
    try:
        done = subprocess.run(words, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise HostProblem(f"cannot run {words[0]}: {error.strerror}", "Install it.") from error
    if done.returncode != 0:
        raise HostProblem(
            f"`{shlex.join(words)}` ended with exit code {done.returncode}",
            "What it wrote above says why; `zluda-stack doctor` looks again.",
        )
