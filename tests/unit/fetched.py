"""Tiny models, and stores that fetch them from a fake hub without waiting."""

from __future__ import annotations

import hashlib
from pathlib import Path
from struct import pack

from tests.fake_hub import FakeHub
from zluda_stack.catalog.schema import HubModel, ModelFile
from zluda_stack.models.fetching import Fetching, Patience
from zluda_stack.models.store import Store
from zluda_stack.models.throttle import Throttle
from zluda_stack.models.wanted import Described

REPOSITORY = "makers/Tiny-GGUF"
FILE = "tiny-q4_k_m.gguf"


def tiny_gguf(data: bytes) -> bytes:
    """A whole GGUF file whose one tensor is `data`."""
    key, architecture, tensor = b"general.architecture", b"llama", b"t"
    header = b"GGUF" + pack("<IQQ", 3, 1, 1)
    header += pack("<Q", len(key)) + key + pack("<IQ", 8, len(architecture)) + architecture
    header += pack("<Q", len(tensor)) + tensor + pack("<IQIQ", 1, len(data), 24, 0)
    return header + bytes(-len(header) % 32) + data


CONTENT = tiny_gguf(bytes(range(256)) * 1000)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def file_of(content: bytes | None, name: str = FILE) -> ModelFile:
    """A file of which `content` is known, or nothing."""
    if content is None:
        return ModelFile(name=name, sha256=None, size=None)
    return ModelFile(name=name, sha256=digest(content), size=len(content))


def hub_model(*files: ModelFile, name: str = "tiny", revision: str | None = None) -> Described:
    return Described(
        name=name,
        files=files or (file_of(None),),
        hub=HubModel(repository=REPOSITORY, revision=revision),
    )


def web_model(hub: FakeHub, *files: ModelFile, name: str = "tiny") -> Described:
    """The same files from the fake hub's other host, which is a plain web server."""
    return Described(
        name=name, files=files or (file_of(CONTENT),), https=f"{hub.cdn}/cdn/{REPOSITORY}"
    )


def store_of(
    root: Path,
    hub: FakeHub,
    *,
    peer: str | None = None,
    limit: int | None = None,
    update: bool = False,
    stall: float = 5,
    environ: dict[str, str] | None = None,
    pauses: list[float] | None = None,
) -> Store:
    """A store in `root` that fetches from `hub`, and remembers its `pauses` without making them."""
    waited = [] if pauses is None else pauses
    fetching = Fetching(
        limit=Throttle(limit),
        patience=Patience(stall_seconds=stall, told_seconds=stall / 4, wait=waited.append),
        peer=peer,
        update=update,
        environ={"HF_ENDPOINT": hub.url, "HOME": str(root)} | (environ or {}),
    )
    return Store(root, fetching=fetching)
