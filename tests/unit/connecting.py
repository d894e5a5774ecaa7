"""What `up` leaves of a stack, and what a shell makes of the exports of `connect`."""

from __future__ import annotations

import os
import subprocess

from tests.unit.command_line import Outcome, run
from zluda_stack import keys, paths
from zluda_stack.errors import ExitCode
from zluda_stack.files import write_atomic
from zluda_stack.plan.types import EndpointPlan, ModelPlan, Plan, to_json

ROOMY = 65536
# Privileged and long unused (tcpmux): no stack of this machine's user answers there.
PORT = 1


def started(
    name: str = "default", *, context: int = ROOMY, port: int = PORT, host: str = "127.0.0.1"
) -> str:
    """Leave what `up` leaves of a stack; returns its key."""
    plan = Plan(
        name=name,
        engine="embedded",
        headline="CPU only.",
        gpus=(),
        skipped=(),
        model=ModelPlan(
            name="big", catalogued=None, path="/m.gguf", context=context, trained_context=context
        ),
        endpoint=EndpointPlan(bind=host, port=port, host=host),
        client=None,
        threads=None,
    )
    write_atomic(paths.stack(name) / "plan.json", to_json(plan))
    return keys.ensure_key(name)


def connect(*arguments: str) -> Outcome:
    """The outcome of `zluda-stack connect ARGUMENTS`, which must succeed."""
    outcome = run("connect", *arguments)
    assert outcome.code == ExitCode.OK, outcome.err
    return outcome


def after_eval(exports: str, **before: str) -> dict[str, str]:
    """The environment of a POSIX shell that had `before` and evaluated `exports`."""
    script = 'eval "$EXPORTS"; unset EXPORTS; env -0'
    shown = subprocess.run(
        ["sh", "-euc", script],
        env={"PATH": os.environ["PATH"], "EXPORTS": exports, **before},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(pair.split("=", 1) for pair in shown.stdout.split("\0") if pair)
