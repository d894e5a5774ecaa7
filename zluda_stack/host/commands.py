"""Questions to other programs: asked side by side, answered within one bound of time and size."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from msgspec import Struct, field

# The probe promises two seconds for everything; what does not answer in time has no answer.
BOUND_S = 1.5
_GRACE_S = 0.2
_MOST_BYTES = 1 << 20
_CHUNK = 1 << 16
_LONGEST_COMPLAINT = 500
_VERSION = re.compile(r"version:? v?(\w[\w.+~-]*)")


class Answer(Struct, frozen=True):
    """Standard output, and the last line of standard error or why nothing was said at all.

    `late` is True for a program that was still at it when the time was over.
    """

    output: str
    complaint: str
    late: bool = False


def ask(
    commands: Sequence[Sequence[str]], environ: Mapping[str, str], bound_s: float | None = None
) -> list[Answer]:
    """The answers of `commands`, in their order, after `bound_s` (None: BOUND_S) at most.

    Never raises. What a program has said by then counts. Programs that still run are killed, with
    what they started.
    """
    bound_s = BOUND_S if bound_s is None else bound_s
    deadline = time.monotonic() + bound_s
    questions = [_Question(command, environ, bound_s) for command in commands]
    try:
        _listen(questions, deadline)
    finally:
        for question in questions:
            question.end(deadline)
    return [question.answer() for question in questions]


class Asking:
    """One question that is asked in the background; `answer` comes after BOUND_S at most."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._found: list[Answer] = []
        self._thread = threading.Thread(
            target=lambda: self._found.extend(ask([command], environ)), daemon=True
        )
        self._thread.start()

    def answer(self, within_s: float | None = None) -> Answer | None:
        """The answer; None when it is not there after `within_s` (None: it is waited for)."""
        self._thread.join(within_s)
        return self._found[0] if self._found else None


def version_in(text: str) -> str | None:
    """The first version that a program's answer to `--version` or `version` names."""
    match = _VERSION.search(text)
    return match[1] if match else None


class _Stream(Struct, eq=False):
    data: bytearray = field(default_factory=bytearray)
    ended: bool = False


class _Question:
    """One program that runs in a process group of its own, and what it has said so far."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], bound_s: float) -> None:
        self.output, self.errors = _Stream(), _Stream()
        self._bound_s = bound_s
        self._failure = ""
        self._late = False
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environ),
                start_new_session=True,
            )
        except OSError as error:
            self._failure = str(error)

    def streams(self) -> list[tuple[IO[bytes], _Stream]]:
        process = self._process
        if process is None or process.stdout is None or process.stderr is None:
            return []
        return [(process.stdout, self.output), (process.stderr, self.errors)]

    def end(self, deadline: float) -> None:
        if self._process is None:
            return
        if not (self.output.ended and self.errors.ended and self._exits_by(deadline)):
            self._failure = f"no answer within {self._bound_s} s"
            self._late = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._exits_by(time.monotonic() + _GRACE_S)
        for pipe, _ in self.streams():
            pipe.close()

    def _exits_by(self, deadline: float) -> bool:
        try:
            return self._process is None or self._process.wait(_left(deadline)) is not None
        except subprocess.TimeoutExpired:
            return False

    def answer(self) -> Answer:
        complaints = self.errors.data.decode(errors="replace").strip().splitlines()
        complaint = complaints[-1].strip() if complaints else self._failure
        output = self.output.data.decode(errors="replace")
        return Answer(output, complaint[:_LONGEST_COMPLAINT], self._late)


def _listen(questions: Sequence[_Question], deadline: float) -> None:
    with selectors.DefaultSelector() as selector:
        for question in questions:
            for pipe, stream in question.streams():
                selector.register(pipe, selectors.EVENT_READ, stream)
        while selector.get_map() and (left := _left(deadline)) > 0:
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, _CHUNK)
                key.data.data += chunk
                key.data.ended = not chunk
                if not chunk or len(key.data.data) > _MOST_BYTES:
                    selector.unregister(key.fileobj)


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
