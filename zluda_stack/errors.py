"""The one error hierarchy: what failed, what to do about it, and the exit code that says so."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The process exit codes; stable, documented in README.md."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    REFUSED = 3
    HOST = 4
    ENGINE = 5
    GAPS = 6
    INTERRUPTED = 130
    READER_GONE = 141


class StackError(Exception):
    """Base of every error a user can meet: `message` is what failed, `hint` the next step."""

    exit_code = ExitCode.INTERNAL

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(StackError):
    """The command line, the environment or a configuration file says something impossible."""

    exit_code = ExitCode.USAGE


class PlanRefused(StackError):
    """`plan.resolve` will not plan this: the wish contradicts itself, the catalogue or the host."""

    exit_code = ExitCode.REFUSED


class DeviceMissing(PlanRefused):
    """Refused because this machine hides or lacks a device of a card that is there.

    As the plan's refusals are handled, with the exit code of what a host lacks.
    """

    exit_code = ExitCode.HOST


class HostProblem(StackError):
    """This machine lacks or blocks something: Docker, a device, a port, disk, a permission."""

    exit_code = ExitCode.HOST


class EngineFailure(StackError):
    """What was started did not come up, or is not up."""

    exit_code = ExitCode.ENGINE


class Interrupted(StackError):
    """The user pressed Ctrl-C; `message` says which state was left behind."""

    exit_code = ExitCode.INTERRUPTED
