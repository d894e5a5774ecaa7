"""Docker commands that take long: their output in a log, and told as it comes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from zluda_stack.engines import logs
from zluda_stack.engines.common import PROGRESS_SECONDS
from zluda_stack.engines.docker import compose
from zluda_stack.progress import Progress

_POLL_SECONDS = 0.2


class Watched(Protocol):
    """The output of a command, understood line by line."""

    def feed(self, line: str) -> None:
        """Take the next line of the output."""

    @property
    def now(self) -> tuple[str, str] | None:
        """What it is doing and what it said last of that; None when there is nothing to tell."""


class LastLine:
    """Output of which the last line says how far it has come."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._line = ""

    def feed(self, line: str) -> None:
        """Take the next line of the output."""
        self._line = line.strip() or self._line

    @property
    def now(self) -> tuple[str, str] | None:
        """The command's title and the last line that is not empty."""
        return self._title, self._line


def run(command_line: tuple[str, ...], log: Path, output: Watched, progress: Progress) -> int:
    """Run the command to its end and return its exit status.

    Its output goes into `log`, whose predecessor is kept, and into `output`, of which a line is
    told every few seconds. Raises HostProblem when there is no docker command.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists():
        log.replace(logs.previous(log))
    follower = logs.Follower(log, lines=0)  # before the log exists, so that it misses nothing
    with compose.running(command_line, log) as process:
        began = told = time.monotonic()
        ended = False
        while not ended:
            ended = process.poll() is not None  # before the last read, which then reads all
            for line in follower.read():
                output.feed(line)
            passed = time.monotonic() - told
            doing = output.now
            if doing is not None and passed >= PROGRESS_SECONDS:
                told += passed
                progress.step(_line(*doing, seconds=int(told - began)))
            if not ended:
                time.sleep(_POLL_SECONDS)
    return process.returncode


def _line(title: str, last: str, *, seconds: int) -> str:
    return f"{title} ... {seconds} s" + (f": {last}" if last else "")
