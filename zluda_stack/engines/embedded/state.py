"""The files of one stack, and what they say about its processes.

Everything here is cheap to import and to read: the host probe asks it on every command.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from zluda_stack import locks
from zluda_stack.errors import HostProblem
from zluda_stack.files import children, write_atomic
from zluda_stack.host.facts import RunningStack
from zluda_stack.plan.types import Plan, from_json

_StructT = TypeVar("_StructT", bound=Struct)

SUPERVISOR = "supervisor"
INFERENCE = "inference"
ENDPOINT = "endpoint"
SERVICES = (SUPERVISOR, INFERENCE, ENDPOINT)


class StackFolder(Struct, frozen=True):
    """Paths under a stack's state folder.

    Processes of the stack run with this folder as their working directory and use `socket` by
    its bare name: a UNIX socket's path may have no more than 107 bytes, a home may have more.
    """

    root: Path

    @property
    def plan(self) -> Path:
        """The plan that the stack was last started with."""
        return self.root / "plan.json"

    @property
    def record(self) -> Path:
        """What the supervisor knows of its processes; gone after a clean stop."""
        return self.root / "state.json"

    @property
    def report(self) -> Path:
        """What the inference process says of itself; there once the model is loaded."""
        return self.root / "inference.json"

    @property
    def key(self) -> Path:
        """The API key."""
        return self.root / "api-key"

    @property
    def keyring(self) -> Path:
        """The digests of further keys."""
        return self.root / "keys"

    @property
    def capture(self) -> Path:
        """Prompts and answers, when they are to be kept."""
        return self.root / "capture"

    @property
    def socket(self) -> Path:
        """Where the inference process listens."""
        return self.root / "inference.sock"

    def lock(self, service: str) -> Path:
        """Held by the process of `service` as long as it lives."""
        return self.root / f"{service}.lock"

    def log(self, service: str) -> Path:
        """The log of `service` since the stack was last started."""
        return self.root / f"{service}.log"

    def lives(self, service: str) -> bool:
        """True while the process of `service` lives, as the kernel says."""
        return locks.held(self.lock(service))


class ProcessRecord(Struct, frozen=True, kw_only=True):
    """One process: `exit_status` is negative for a signal, `ended` in seconds since 1970."""

    pid: int
    exit_status: int | None = None
    ended: float | None = None


class RunRecord(Struct, frozen=True, kw_only=True):
    """One run of a stack, by its supervisor's pid. `draining` after it was told to stop.

    `port` is the endpoint's; a run that an earlier version started has none. A pid here is that
    of a living process only while the lock of its service is held.
    """

    supervisor: int
    port: int | None = None
    processes: dict[str, ProcessRecord] = {}
    draining: bool = False

    def pid(self, service: str) -> int | None:
        """The pid of `service`; None when it was not started yet."""
        if service == SUPERVISOR:
            return self.supervisor
        process = self.processes.get(service)
        return process.pid if process else None


class InferenceReport(Struct, frozen=True, kw_only=True):
    """What llama.cpp says it computes on."""

    device: str


def read_record(folder: StackFolder) -> RunRecord | None:
    """The record of the current run, or of one that ended without being stopped."""
    return _read(folder.record, RunRecord)


def write_record(folder: StackFolder, record: RunRecord) -> None:
    """Replace the record in one step."""
    write_atomic(folder.record, msgspec.json.encode(record), mode=0o600)


def read_report(folder: StackFolder) -> InferenceReport | None:
    """The report of the inference process; None until it has loaded the model."""
    return _read(folder.report, InferenceReport)


def write_report(folder: StackFolder, report: InferenceReport) -> None:
    """Say that the model is loaded."""
    write_atomic(folder.report, msgspec.json.encode(report), mode=0o600)


def read_plan(folder: StackFolder) -> Plan | None:
    """The plan of the last start; None when there was none or another version wrote it."""
    data = _content(folder.plan)
    try:
        return None if data is None else from_json(data)
    except msgspec.MsgspecError:
        return None


class _PortOfPlan(Struct):
    port: int


class _EndpointOfPlan(Struct):
    endpoint: _PortOfPlan


def running_stacks(stacks_dir: Path) -> tuple[RunningStack, ...]:
    """The embedded stacks under `stacks_dir` whose supervisor lives, by name, with their port."""
    found = []
    for folder in map(StackFolder, children(stacks_dir)):
        with suppress(HostProblem):  # a folder that is not ours holds no stack of ours
            port = _port(folder)
            if port is not None and folder.lives(SUPERVISOR):
                found.append(RunningStack(name=folder.root.name, port=port))
    return tuple(found)


def _port(folder: StackFolder) -> int | None:
    """The port of the run, whichever of its files can still be read."""
    record = read_record(folder)
    if record is not None and record.port is not None:
        return record.port
    plan = _read(folder.plan, _EndpointOfPlan)
    return None if plan is None else plan.endpoint.port


def _read(path: Path, kind: type[_StructT]) -> _StructT | None:
    data = _content(path)
    try:
        return None if data is None else msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError:
        return None


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HostProblem(
            f"cannot read {path}: {error.strerror}", "Check whose folder it is."
        ) from error
