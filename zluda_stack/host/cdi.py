"""CDI specifications for AMD's cards: by which names an engine passes which device nodes.

Format: https://github.com/cncf-tags/container-device-interface, SPEC.md; folders: its defaults,
which Docker and Podman use too. AMD's amd-ctk writes amd.json there.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from zluda_stack.host import reading
from zluda_stack.host.facts import CdiSpec

_FOLDERS = ("/etc/cdi", "/var/run/cdi")
_KIND = "amd.com/gpu"
# A card is some 500 bytes of such a file; aliases in YAML could make a small one huge.
_MOST_BYTES = 1 << 17
_MOST_DEVICES = 256
_MOST_NODES = 64


class _Node(Struct, frozen=True, rename="camel"):
    path: str
    host_path: str = ""


class _Edits(Struct, frozen=True, rename="camel"):
    device_nodes: tuple[_Node, ...] | None = None


class _Device(Struct, frozen=True, rename="camel"):
    name: str
    container_edits: _Edits = _Edits()


class _Spec(Struct, frozen=True, rename="camel"):
    kind: str
    devices: tuple[_Device, ...] = ()
    container_edits: _Edits = _Edits()


def read_cdi(root: Path) -> tuple[CdiSpec, ...]:
    """Every specification of kind amd.com/gpu; what is damaged is passed over, as engines do."""
    paths = (f"{folder}/{name}" for folder in _FOLDERS for name in _files(root, folder))
    specs = (_read(root, path) for path in paths)
    return tuple(spec for spec in specs if spec is not None)


def _files(root: Path, folder: str) -> list[str]:
    names = reading.listing(root / folder.lstrip("/"))
    return [name for name in names if name.endswith((".json", ".yaml"))]


def _read(root: Path, path: str) -> CdiSpec | None:
    try:
        raw = reading.read(root / path.lstrip("/"), _MOST_BYTES)
        spec = _decoded(raw, path) if _KIND.encode() in raw else None
    except Exception:  # PyYAML lets errors of every kind through for values that fit no type
        return None
    if spec is None or spec.kind != _KIND:
        return None
    nodes = {device.name: _nodes(spec, device) for device in spec.devices[:_MOST_DEVICES]}
    return CdiSpec(path=path, kind=spec.kind, devices=tuple(nodes), nodes=nodes)


def _decoded(raw: bytes, path: str) -> _Spec:
    if path.endswith(".json"):
        return msgspec.json.decode(raw, type=_Spec)
    return msgspec.yaml.decode(raw, type=_Spec)


def _nodes(spec: _Spec, device: _Device) -> tuple[str, ...]:
    """What is passed with the device: its own nodes, and those that go with every device."""
    edits = (device.container_edits, spec.container_edits)
    passed = (node for edit in edits for node in edit.device_nodes or ())
    return tuple(node.host_path or node.path for node in islice(passed, _MOST_NODES))
