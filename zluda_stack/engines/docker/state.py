"""The files of one container stack. Cheap to import and to read: the host probe asks it."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from zluda_stack.files import write_atomic
from zluda_stack.host.facts import RunningStack
from zluda_stack.plan.types import Plan, from_json

_MARK = "docker.json"


class StackFolder(Struct, frozen=True):
    """Paths under a stack's state folder."""

    root: Path

    @property
    def plan(self) -> Path:
        """The plan that the stack was last started with."""
        return self.root / "plan.json"

    @property
    def project(self) -> Path:
        """The rendered files that the containers were made from."""
        return self.root / "project"

    @property
    def context(self) -> Path:
        """The rendered files that images are built from."""
        return self.root / "context"

    @property
    def previous(self) -> Path:
        """The rendered files of the stack that is being replaced."""
        return self.root / "project.previous"

    @property
    def mark(self) -> Path:
        """There from `up` to `down`: the containers are, or may be, running."""
        return self.root / _MARK

    @property
    def secrets(self) -> Path:
        """Files that are mounted into the containers, readable by their users."""
        return self.root / "secrets"

    @property
    def compose_log(self) -> Path:
        """What `docker compose` said last."""
        return self.root / "compose.log"


class Mark(Struct, frozen=True, kw_only=True):
    """What the probe must know of a stack that was started and not taken down."""

    port: int


def write_mark(folder: StackFolder, mark: Mark) -> None:
    """Say that the stack is started."""
    write_atomic(folder.mark, msgspec.json.encode(mark), mode=0o600)


def read_plan(folder: StackFolder) -> Plan | None:
    """The plan of the last start; None when there was none or another version wrote it."""
    try:
        plan = from_json(folder.plan.read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return plan if plan.engine == "docker" else None


def running_stacks(stacks_dir: Path) -> tuple[RunningStack, ...]:
    """The container stacks under `stacks_dir` that were started and not taken down, by name."""
    found = []
    for mark in sorted(stacks_dir.glob(f"*/{_MARK}")):
        try:
            port = msgspec.json.decode(mark.read_bytes(), type=Mark).port
        except (OSError, msgspec.MsgspecError):
            continue
        plan = read_plan(StackFolder(mark.parent))
        found.append(
            RunningStack(
                name=mark.parent.name,
                port=port,
                page_port=None if plan is None or plan.page is None else plan.page.port,
                free_bytes={} if plan is None else _free(plan),
            )
        )
    return tuple(found)


def _free(plan: Plan) -> dict[str, int]:
    return {
        gpu.pci: gpu.free_bytes
        for gpu in plan.gpus
        if gpu.pci is not None and gpu.free_bytes is not None
    }
