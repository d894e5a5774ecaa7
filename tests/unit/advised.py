"""`zluda-stack advise` for the machines of tests/cases."""

from __future__ import annotations

from tests.unit.command_line import CASES, Outcome, run
from zluda_stack.errors import ExitCode


def advise(*words: str, host: str) -> Outcome:
    """What `advise WORDS` says on that machine."""
    return run("advise", *words, "--host-facts", str(CASES / f"{host}.json"))


def code(*words: str, host: str) -> str:
    """The name of the advice; fails the test where there is none."""
    outcome = advise(*words, "--json", host=host)
    assert outcome.code == ExitCode.OK, outcome.out
    found: str = outcome.json["advice"]["code"]
    return found
