"""The first member of a bundle: what it holds, for which machine, and every member's hash."""

from __future__ import annotations

import platform
import sys
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from zluda_stack.catalog.schema import Sha256
from zluda_stack.errors import UsageError
from zluda_stack.models.layout import Record

NAME = "manifest.json"
FORMAT = 1

Kind = Literal["text", "wheel", "project", "model", "image"]
_Text = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
# Relative, without `.` and `..`: a manifest can come from anywhere.
MemberPath = Annotated[
    str,
    Meta(
        pattern=r"^(?!(.*/)?\.{1,2}(/|\Z))[A-Za-z0-9._+@=-]+(/[A-Za-z0-9._+@=-]+)*\Z",
        max_length=250,
    ),
]


class Member(Struct, frozen=True, kw_only=True):
    """One file of a bundle after the manifest, in the manifest's order; `size` in bytes."""

    path: MemberPath
    kind: Kind
    size: Annotated[int, Meta(ge=0)]
    sha256: Sha256


class BundledModel(Struct, frozen=True, kw_only=True):
    """A model of the store. The files of its record are the members blobs/sha256-<hex>."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}\Z")]
    record: Record


class BundledImage(Struct, frozen=True, kw_only=True):
    """A container image: its tag, its content key, and the member that `docker save` wrote."""

    name: _Text
    tag: _Text
    key: Sha256 | None
    member: MemberPath


class Manifest(Struct, frozen=True, kw_only=True):
    """What a bundle is.

    `version` is that of the zluda-stack that wrote it, `machine` the CPU architecture that its
    images run on, `python` the interpreter that its wheels are for (see `interpreter`), None
    without wheels. `up` are the arguments of `up` on the machine that loads it.
    """

    format: int
    version: _Text
    created: _Text
    headline: Annotated[str, Meta(max_length=2000)]
    machine: _Text
    python: _Text | None
    up: tuple[_Text, ...]
    models: tuple[BundledModel, ...]
    images: tuple[BundledImage, ...]
    members: Annotated[tuple[Member, ...], Meta(max_length=100_000)] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for two members of one name, and for a part without its member."""
        paths = {member.path for member in self.members}
        if len(paths) != len(self.members) or NAME in paths:
            raise ValueError("two members have one name")
        if self.members and not {*model_paths(self), *(one.member for one in self.images)} <= paths:
            raise ValueError("a model or an image is not among the members")

    @property
    def size(self) -> int:
        """Bytes of all members together."""
        return sum(member.size for member in self.members)

    def of(self, *kinds: Kind) -> tuple[Member, ...]:
        """The members of these kinds, in order."""
        return tuple(member for member in self.members if member.kind in kinds)


def model_paths(manifest: Manifest) -> set[str]:
    """The members that are files of models."""
    return {blob_path(file.sha256) for one in manifest.models for file in one.record.files}


def blob_path(sha256: str) -> str:
    """The member that is the file of a model with this hash."""
    return f"models/blobs/sha256-{sha256}"


def interpreter() -> str:
    """This interpreter and its platform, as wheels distinguish them; install.sh says the same."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    libc = platform.libc_ver()[0] or "other"
    system = f"{platform.system()} {platform.machine()} {libc}"
    return f"{sys.implementation.name} {version} {system}"


def encode(manifest: Manifest) -> bytes:
    """The manifest as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode(raw: bytes) -> Manifest:
    """The manifest that `encode` wrote, blanks after it ignored.

    Raises UsageError for one of another format, msgspec.MsgspecError for no manifest at all.
    """
    found = msgspec.json.decode(raw, type=_Format)
    if found.format != FORMAT:
        raise UsageError(
            f"the bundle has the format {found.format}, and this version reads {FORMAT}",
            "Install the zluda-stack that is in the bundle (its README.txt says how).",
        )
    return msgspec.json.decode(raw, type=Manifest)


class _Format(Struct):
    format: int
