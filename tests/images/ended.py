"""A command that gets a signal while its program runs."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path


def terminated(line: list[str], folder: Path, environment: dict[str, str]) -> int:
    """The exit code of the command, which gets a SIGTERM once its program has said `ready`."""
    with subprocess.Popen(
        line, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        read_until(process.stdout.fileno(), b"ready")
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        return process.wait()


def read_until(descriptor: int, wanted: bytes) -> bytes:
    """What comes from `descriptor`, as far as `wanted`."""
    seen = b""
    while wanted not in seen:
        seen += os.read(descriptor, 1024)
    return seen
