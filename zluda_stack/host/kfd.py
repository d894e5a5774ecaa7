"""The KFD topology: which AMD GPUs the kernel's compute driver knows, without ROCm installed.

Format: "key value" lines under /sys/class/kfd/kfd/topology/nodes/N/properties, written by the
amdgpu kernel driver (drivers/gpu/drm/amd/amdkfd/kfd_topology.c in Linux).
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from zluda_stack.host import drm, pci, reading
from zluda_stack.host.facts import GpuFacts
from zluda_stack.host.names import Names

_NODES = "sys/class/kfd/kfd/topology/nodes"
# HSA_MEM_HEAP_TYPE_FB_PUBLIC and _FB_PRIVATE: memory on the card itself.
_VRAM_HEAPS = (1, 2)
# gfx99.9.f; what is beyond is damage.
_LARGEST_VERSION = 999_999


class Topology(Struct, frozen=True):
    """The GPUs in the kernel's order, and how many nodes the device cgroup hides."""

    gpus: tuple[GpuFacts, ...]
    hidden: int


def read_topology(root: Path, names: Names) -> Topology:
    """Every GPU node of the topology under `root`; CPU nodes are left out."""
    gpus: list[GpuFacts] = []
    hidden = 0
    for number, folder in _node_folders(root):
        try:
            text = reading.read(folder / "properties").decode(errors="replace")
        except PermissionError:  # the device cgroup lacks this card's render node
            hidden += 1
            continue
        except OSError:
            continue
        properties = parse_properties(text)
        if properties.get("simd_count"):
            gpus.append(_gpu(root, names, number, folder, properties))
    return Topology(gpus=tuple(gpus), hidden=hidden)


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
    numbers = ((pair[0], reading.decimal(pair[1])) for pair in pairs if len(pair) == 2)
    return {key: number for key, number in numbers if number is not None}


def _node_folders(root: Path) -> list[tuple[int, Path]]:
    """The nodes by number: node 10 comes after node 9, not after node 1."""
    folders = []
    for name in reading.listing(root / _NODES):
        number = reading.decimal(name)
        if number is not None and str(number) == name:
            folders.append((number, root / _NODES / name))
    return sorted(folders)


def _gpu(
    root: Path, names: Names, number: int, folder: Path, properties: dict[str, int]
) -> GpuFacts:
    version = properties.get("gfx_target_version", 0)
    address = _address(properties)
    node = _render_node(root, properties.get("drm_render_minor", 0), address)
    device = _device_folder(root, address, node)
    memory = drm.memory(device)
    banks = sum(_vram_banks(folder)) or None
    return GpuFacts(
        kfd_node=number,
        gfx_target=gfx_name(version) if 0 < version <= _LARGEST_VERSION else None,
        name=pci.name(device, names),
        pci=address,
        device_id=properties.get("device_id"),
        unique_id=_unique_id(properties.get("unique_id", 0)),
        render_node=node,
        vram_bytes=_smaller(banks, memory.vram),
        vram_used_bytes=memory.vram_used,
        gtt_bytes=memory.gtt,
        integrated=_integrated(properties, device, banks, memory.vram),
    )


def _address(properties: dict[str, int]) -> str | None:
    location = properties.get("location_id")
    return None if location is None else pci_address(location, properties.get("domain", 0))


def _device_folder(root: Path, address: str | None, node: str | None) -> Path:
    """The card's folder in sysfs. By its address when that is there: a render node may not be."""
    if address is not None:
        folder = pci.device_folder(root, address)
        if reading.kind(folder) == stat.S_IFDIR:
            return folder
    return drm.device_folder(root, Path(node or "none").name)


def _smaller(banks: int | None, vram: int | None) -> int | None:
    """Memory on the card, which KFD and DRM each tell.

    For an integrated GPU whose carve-out is smaller than its GTT, kernels since 2024 give the
    GTT as KFD's memory (apu_prefer_gtt in drivers/gpu/drm/amd/amdgpu); for one partition of an
    Instinct card, DRM gives the whole card. The smaller of the two is right in both cases.
    """
    return min((count for count in (banks, vram) if count is not None), default=None)


def _integrated(
    properties: dict[str, int], device: Path, banks: int | None, vram: int | None
) -> bool | None:
    """True when something shows it, else None: no file of sysfs says that a card is discrete.

    Not asked of the driver itself (the FUSION bit of AMDGPU_INFO_DEV_INFO): that means opening
    the render node, which wakes a sleeping card and waits as long as that takes.
    """
    if properties.get("cpu_cores_count"):  # older kernels make one node of CPU and GPU
        return True
    if banks is not None and vram is not None and banks > vram:  # see _smaller
        return True
    return True if drm.has_carve_out(device) else None


def _unique_id(value: int) -> str | None:
    """The id in the form that rocminfo prints and ROCR_VISIBLE_DEVICES takes; 0 means none."""
    return f"GPU-{value:016x}" if value else None


def _render_node(root: Path, minor: int, address: str | None) -> str | None:
    """The card's node under /dev/dri; None when there is none, or DRM gives it to another card."""
    path = f"dev/dri/renderD{minor}"
    if not minor or reading.kind(root / path) == 0:
        return None
    behind = drm.pci_address(drm.device_folder(root, Path(path).name))
    belongs = address is None or behind is None or behind == address
    return f"/{path}" if belongs else None


def _vram_banks(folder: Path) -> Iterator[int]:
    for bank in reading.listing(folder / "mem_banks"):
        properties = parse_properties(reading.text(folder / "mem_banks" / bank / "properties"))
        if properties.get("heap_type") in _VRAM_HEAPS:
            yield reading.size(str(properties.get("size_in_bytes", 0))) or 0
