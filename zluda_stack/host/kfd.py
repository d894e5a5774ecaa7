"""The KFD topology: which AMD GPUs the kernel's compute driver knows, without ROCm installed.

Format: "key value" lines under /sys/class/kfd/kfd/topology/nodes/N/properties, written by the
amdgpu kernel driver (drivers/gpu/drm/amd/amdkfd/kfd_topology.c in Linux).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from zluda_stack.host.facts import GpuFacts

_NODES = "sys/class/kfd/kfd/topology/nodes"
# HSA_MEM_HEAP_TYPE_FB_PUBLIC and _FB_PRIVATE: memory on the card itself.
_VRAM_HEAPS = (1, 2)


def read_gpus(root: Path) -> tuple[GpuFacts, ...]:
    """Every GPU node of the topology under `root`, in the kernel's order.

    CPU nodes and nodes that the device cgroup hides (their files answer EPERM) are left out.
    """
    nodes = (_read_node(root, folder) for folder in _node_folders(root))
    return tuple(node for node in nodes if node is not None)


def gfx_name(version: int) -> str:
    """The gfx target of a KFD gfx_target_version, which is major*10000 + minor*100 + stepping.

    >>> gfx_name(110000), gfx_name(90010), gfx_name(100306)
    ('gfx1100', 'gfx90a', 'gfx1036')
    """
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{stepping:x}"


def pci_address(location_id: int, domain: int) -> str:
    """domain:bus:device.function of a KFD location_id, which is bus<<8 | device<<3 | function."""
    bus, device, function = location_id >> 8 & 0xFF, location_id >> 3 & 0x1F, location_id & 7
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


def parse_properties(text: str) -> dict[str, int]:
    """The "key value" lines as integers; lines of any other form are passed over."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _node_folders(root: Path) -> list[Path]:
    try:
        folders = [entry for entry in (root / _NODES).iterdir() if entry.name.isdigit()]
    except OSError:
        return []
    return sorted(folders, key=lambda folder: int(folder.name))


def _read_node(root: Path, folder: Path) -> GpuFacts | None:
    properties = parse_properties(_text(folder / "properties"))
    if not properties.get("simd_count"):
        return None
    version = properties.get("gfx_target_version", 0)
    location = properties.get("location_id")
    render_node = _render_node(root, properties.get("drm_render_minor", 0))
    return GpuFacts(
        kfd_node=int(folder.name),
        gfx_target=gfx_name(version) if version else None,
        pci=None if location is None else pci_address(location, properties.get("domain", 0)),
        device_id=properties.get("device_id"),
        unique_id=_unique_id(properties.get("unique_id", 0)),
        render_node=render_node,
        vram_bytes=sum(_vram_banks(folder)) or None,
        gtt_bytes=_gtt_bytes(root, render_node),
    )


def _unique_id(value: int) -> str | None:
    """The id in the form that rocminfo prints and ROCR_VISIBLE_DEVICES takes; 0 means none."""
    return f"GPU-{value:016x}" if value else None


def _render_node(root: Path, minor: int) -> str | None:
    path = f"dev/dri/renderD{minor}"
    return f"/{path}" if minor and (root / path).exists() else None


def _vram_banks(folder: Path) -> Iterator[int]:
    for bank in sorted(folder.glob("mem_banks/*/properties")):
        properties = parse_properties(_text(bank))
        if properties.get("heap_type") in _VRAM_HEAPS:
            yield properties.get("size_in_bytes", 0)


def _gtt_bytes(root: Path, render_node: str | None) -> int | None:
    if render_node is None:
        return None
    device = root / "sys/class/drm" / Path(render_node).name / "device"
    text = _text(device / "mem_info_gtt_total").strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    """The file's text; empty when it is missing or hidden, which says the same here."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
