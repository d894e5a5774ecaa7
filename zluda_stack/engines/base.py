"""What every engine can do. An engine carries a Plan out and decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Protocol

from msgspec import Struct

from zluda_stack.plan.types import Plan
from zluda_stack.progress import Progress


class State(str, Enum):
    """The state of a service or a stack."""

    RUNNING = "running"
    STARTING = "starting"
    CRASHED = "crashed"
    STOPPED = "stopped"


class ServiceStatus(Struct, frozen=True, kw_only=True):
    """One service: `exit_status` is negative for a signal; `log_tail` is filled for a crash."""

    name: str
    state: State
    pid: int | None = None
    exit_status: int | None = None
    log_tail: tuple[str, ...] = ()


class Requests(Struct, frozen=True, kw_only=True):
    """Requests that are computed, in how many places (None: not known yet), and that wait."""

    running: int
    places: int | None
    waiting: int


class StackStatus(Struct, frozen=True, kw_only=True):
    """One stack. `healthy` is True only when the endpoint answered just now.

    `device` is what the inference server itself says it computes on, once it has loaded;
    `requests` what the endpoint is answering, None where nobody asked it.
    """

    name: str
    engine: str
    state: State
    healthy: bool
    url: str | None = None
    model: str | None = None
    context: int | None = None
    device: str | None = None
    services: tuple[ServiceStatus, ...] = ()
    requests: Requests | None = None


class Engine(Protocol):
    """The methods behind up, down, status, logs and restart."""

    def commands(self, plan: Plan) -> tuple[tuple[str, ...], ...]:
        """The exact commands that `up` would run, for --dry-run."""

    def is_up(self, plan: Plan) -> bool:
        """True when `up` would leave everything as it is: the stack runs this plan, healthy."""

    def up(self, plan: Plan, progress: Progress) -> StackStatus:
        """Bring the stack to the plan and return when the endpoint answers.

        A stack that already runs this plan and is healthy is left alone. Raises HostProblem,
        EngineFailure (with the log's tail), Interrupted.
        """

    def down(self, name: str, progress: Progress, *, volumes: bool = False) -> bool:
        """Stop the stack; True when there was one. Idempotent.

        With `volumes`, what it keeps beside the model store (volumes of containers) goes too.
        """

    def status(self, name: str) -> StackStatus:
        """What is true now, read from the processes themselves and not from memory."""

    def logs(self, name: str, service: str | None, tail: int, *, follow: bool) -> Iterator[str]:
        """Log lines, oldest first, `service: line` when `service` is None."""
