"""What `doctor` says: findings, each of one layer, with its evidence and one fix."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from msgspec import Struct

from zluda_stack.doctor.subject import Subject
from zluda_stack.errors import ExitCode


class Layer(str, Enum):
    """What a stack stands on, the lowest first: what fails below explains what fails above."""

    HARDWARE = "hardware"
    KERNEL = "kernel"
    DRIVER = "driver"
    NODES = "nodes"
    PERMISSIONS = "permissions"
    ENGINE = "engine"
    ACCESS = "access"
    SETTINGS = "settings"
    IMAGES = "images"
    MODEL = "model"
    ENDPOINT = "endpoint"
    CLIENT = "client"


class Status(str, Enum):
    """How a check ended; a fail keeps the stack from working as planned, a warning does not."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"


class Fix(Struct, frozen=True, kw_only=True):
    """The way out: `command` can be pasted into a shell, `then` is what follows it.

    `doctor --fix` runs a `safe` one: it needs no root and no shell, and changes nothing but the
    user's own settings, models and choice of Docker context.
    """

    command: str
    then: str = ""
    safe: bool = False


class Verdict(Struct, frozen=True, kw_only=True):
    """What one check found. `rest` says why the later checks of its chain do not matter then."""

    status: Status
    evidence: str = ""
    reason: str = ""
    fix: Fix | None = None
    rest: str = ""


class Check(Struct, frozen=True, kw_only=True):
    """One question to a subject. `id` is stable: the layer, a dot, and what would be wrong.

    `exit_code` is that of the program when this fails first.
    """

    id: str
    look: Callable[[Subject], Verdict]
    exit_code: ExitCode = ExitCode.HOST

    @property
    def layer(self) -> Layer:
        """The layer that the id begins with."""
        return Layer(self.id.partition(".")[0])


class Finding(Struct, frozen=True, kw_only=True):
    """What is told of one check; `because` is the id of the finding that made it be skipped."""

    id: str
    layer: Layer
    status: Status
    evidence: str = ""
    reason: str = ""
    fix: Fix | None = None
    because: str | None = None
    exit_code: int = 0


def ok(evidence: str = "", *, rest: str = "") -> Verdict:
    """Nothing is wrong; `evidence` is worth a word in the summary."""
    return Verdict(status=Status.OK, evidence=evidence, rest=rest)


def warn(evidence: str, reason: str, fix: Fix, *, rest: str = "") -> Verdict:
    """Something that the user should know, and that keeps nothing from working."""
    return Verdict(status=Status.WARN, evidence=evidence, reason=reason, fix=fix, rest=rest)


def fail(evidence: str, reason: str, fix: Fix) -> Verdict:
    """The stack cannot work as planned before this is mended."""
    return Verdict(status=Status.FAIL, evidence=evidence, reason=reason, fix=fix)


def skip(reason: str) -> Verdict:
    """The check says nothing here: what it would look at was not looked at."""
    return Verdict(status=Status.SKIPPED, reason=reason)
