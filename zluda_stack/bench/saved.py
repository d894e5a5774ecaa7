"""A bench as it is saved: all raw samples and where they are from, as versioned JSON.

Nothing of it names a person or a machine: no host name, user, address, path or key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from zluda_stack.errors import HostProblem, UsageError
from zluda_stack.files import write_atomic

VERSION = 1
_FORMAT = "zluda-stack-bench"
# What a bench can have measured: more is a damaged file, and would lead the statistics astray.
Seconds = Annotated[float, Meta(ge=0, le=1e7)]
Count = Annotated[int, Meta(ge=0, le=10**9)]
Bytes = Annotated[int, Meta(ge=0, le=2**60)]
Watts = Annotated[float, Meta(ge=0, le=1e6)]


class Answer(Struct, frozen=True, kw_only=True):
    """One answer; times are seconds on the client's clock since the request was sent.

    `first` and `last` are when the first and the last piece of text came, `gaps` what was between
    the pieces. Tokens are as the server counts them. With a `fault` it counts for nothing.
    """

    first: Seconds = 0.0
    last: Seconds = 0.0
    gaps: tuple[Seconds, ...] = ()
    prompt_tokens: Count = 0
    cached_tokens: Count = 0
    tokens: Count = 0
    fault: str = ""


class Wave(Struct, frozen=True, kw_only=True):
    """So many `clients` that asked a target at once, until the last had its answer.

    `round` counts from 0; `visit` is the place in the order of all visits of targets. `began` is
    in seconds since the bench began.
    """

    target: str
    round: Count
    visit: Count
    prompt: str
    clients: Count
    began: Seconds
    seconds: Seconds
    answers: tuple[Answer, ...]


class Watched(Struct, frozen=True, kw_only=True):
    """What a target took during one visit: bytes of memory at most, and watts of its cards.

    What nothing here can tell is None, and `watts` empty.
    """

    target: str
    visit: Count
    memory: Bytes | None = None
    card_memory: Bytes | None = None
    watts: tuple[Watts, ...] = ()


class TargetFacts(Struct, frozen=True, kw_only=True):
    """What was measured. None is what is not known, as of a remote server.

    `device` is what the model server says it computes on. `plan_hash` is of all in a plan that
    has an effect on speed, `model_sha256` of the model's file. `rocprof` is True for one whose
    server ran under rocprofv3.
    """

    name: str
    kind: Literal["profile", "stack", "remote"]
    profile: str | None = None
    engine: str | None = None
    device: str | None = None
    model: str | None = None
    model_sha256: str | None = None
    context: int | None = None
    slots: int | None = None
    plan_hash: str | None = None
    versions: dict[str, str] = {}
    rocprof: bool = False


class NotMeasured(Struct, frozen=True, kw_only=True):
    """A target, or a prompt of one, that could not be measured, why, and what would help."""

    target: str
    prompt: str | None = None
    reason: str
    hint: str = ""


class Machine(Struct, frozen=True, kw_only=True):
    """The client's machine; memory is in bytes."""

    system: str
    machine: str
    kernel: str
    cpu: str | None
    cpu_count: int
    memory: int | None
    cards: tuple[str, ...] = ()


class Run(Struct, frozen=True, kw_only=True):
    """A whole bench. `order` is the seed of the order of visits, `began` a time in UTC.

    `client_cpu` is the client's own CPU time by the time of all waves: 1 is one core.
    """

    format: str = _FORMAT
    version: int = VERSION
    program: str
    began: str
    seconds: Seconds
    machine: Machine
    targets: Annotated[tuple[TargetFacts, ...], Meta(min_length=1)]
    not_measured: tuple[NotMeasured, ...] = ()
    prompts: dict[str, str]
    cached: bool = False
    clients: tuple[Count, ...]
    rounds: Count
    order: int
    client_cpu: Annotated[float, Meta(ge=0, le=1e6)]
    waves: tuple[Wave, ...]
    watched: tuple[Watched, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The targets' names, in the order in which they were given."""
        return tuple(target.name for target in self.targets)


def write(path: Path, run: Run) -> None:
    """Save `run` at `path`. Raises HostProblem."""
    write_atomic(path, to_json(run))


def to_json(run: Run) -> bytes:
    """`run` as JSON with sorted keys and a final newline."""
    return msgspec.json.format(msgspec.json.encode(run, order="sorted"), indent=1) + b"\n"


def read(path: Path) -> Run:
    """The bench that was saved at `path`.

    Raises UsageError for a file that holds none, or one of a version that this program does not
    know, and HostProblem when it cannot be read.
    """
    try:
        raw = path.read_bytes()
        head = msgspec.json.decode(raw, type=_Head)
        if head.format != _FORMAT:
            raise UsageError(f"{path} holds no bench", "Give a file that `bench --out` wrote.")
        if head.version != VERSION:
            raise UsageError(
                f"{path} is of version {head.version}, and this program reads version {VERSION}",
                "Read it with the program that wrote it, or measure again.",
            )
        return msgspec.json.decode(raw, type=Run)
    except OSError as error:
        raise HostProblem(
            f"cannot read {path}: {error.strerror}", "Give a file that `bench --out` wrote."
        ) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{path} holds no bench: {error}", "Give a file that `bench --out` wrote."
        ) from error


class _Head(Struct):
    format: str = ""
    version: int = 0
