"""What the docker command line says of itself and of its engine, within a bound of time."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from zluda_stack.host.facts import DockerFacts

# One slow or hanging engine must not hold up a plan; the answer then counts as "no answer".
_BOUND_S = 2.0


def read_docker(environ: Mapping[str, str]) -> DockerFacts:
    """The facts of the docker command on PATH; `problem` is set when its engine is of no use."""
    program = shutil.which("docker", path=environ.get("PATH"))
    if program is None:
        return DockerFacts(problem="the docker command is not installed")
    with ThreadPoolExecutor(max_workers=2) as pool:
        version = pool.submit(_run, (program, "version", "--format", "{{json .}}"), environ)
        compose = pool.submit(_run, (program, "compose", "version", "--short"), environ)
        return _facts(version.result(), compose.result())


def _facts(version: tuple[str, str], compose: tuple[str, str]) -> DockerFacts:
    output, complaint = version
    answer = _json(output)
    client = answer.get("Client") or {}
    server = answer.get("Server") or {}
    problem = None
    if not server:
        problem = complaint or "the Docker Engine did not answer"
    return DockerFacts(
        client_version=client.get("Version"),
        engine_version=server.get("Version"),
        compose_version=compose[0].strip().removeprefix("v") or None,
        context=client.get("Context"),
        operating_system=(server.get("Platform") or {}).get("Name"),
        problem=problem,
    )


def _json(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def _run(command: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, str]:
    """Standard output and the last line of standard error; empty output for any failure."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_BOUND_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env=dict(environ),
        )
    except subprocess.TimeoutExpired:
        return "", f"no answer within {_BOUND_S:.0f} s"
    except OSError as error:
        return "", str(error)
    return done.stdout, (done.stderr.strip().splitlines() or [""])[-1]
