"""The command lines of a stack's processes. No secret is ever among them."""

from __future__ import annotations

import sys
from pathlib import Path

from zluda_stack.engines.embedded.state import StackFolder
from zluda_stack.plan.endpoint import gateway_options
from zluda_stack.plan.types import Plan

DRAIN_SECONDS = 10

_PACKAGE = "zluda_stack.engines.embedded"


def supervisor(folder: StackFolder, model: Path) -> tuple[str, ...]:
    """Starts the background process that starts the others."""
    return (sys.executable, "-m", f"{_PACKAGE}.supervisor", str(folder.root), str(model))


def tethered(lifeline: int, command: tuple[str, ...]) -> tuple[str, ...]:
    """`command` (of the two below), tied to the pipe end `lifeline`."""
    python, option, *module_and_arguments = command
    return (python, option, f"{_PACKAGE}.tether", str(lifeline), *module_and_arguments)


def inference(plan: Plan, model: Path) -> tuple[str, ...]:
    """Serves `model` on the stack's socket."""
    threads = () if plan.threads is None else ("--threads", str(plan.threads))
    return (
        *(sys.executable, "-m", f"{_PACKAGE}.inference"),
        *("--model", str(model)),
        *("--alias", plan.model.name, "--alias", "default"),
        *("--context", str(plan.model.context)),
        *("--batch", str(plan.model.batch)),
        *threads,
    )


def endpoint(folder: StackFolder, plan: Plan) -> tuple[str, ...]:
    """Serves clients."""
    tls = plan.endpoint.tls
    return (
        *(sys.executable, "-m", "zluda_stack.gateway"),
        *("--bind", plan.endpoint.bind, "--port", str(plan.endpoint.port)),
        *("--upstream", f"unix:{folder.socket.name}"),
        *("--key-file", folder.key.name, "--key-hashes", folder.keyring.name),
        *("--drain", str(DRAIN_SECONDS)),
        *(() if tls is None else ("--tls-cert", tls.certificate, "--tls-key", tls.key)),
        *(("--capture", folder.capture.name) if plan.endpoint.capture else ()),
        *gateway_options(plan.endpoint),
    )
