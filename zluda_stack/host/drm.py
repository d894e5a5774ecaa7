"""What the kernel's graphics driver (DRM) tells of a card in sysfs, beside the KFD topology.

The mem_info_* files are those of drivers/gpu/drm/amd/amdgpu in Linux; they are read without
waking a card that sleeps, which opening its render node would do.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from msgspec import Struct

from zluda_stack.host import reading

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class Memory(Struct, frozen=True):
    """Bytes of a card's own memory, how much of it is used, and of system memory that it maps."""

    vram: int | None
    vram_used: int | None
    gtt: int | None


def device_folder(root: Path, node: str) -> Path:
    """The sysfs folder of the device behind the render node or card of that name."""
    return root / "sys/class/drm" / node / "device"


def pci_address(device: Path) -> str | None:
    """The PCI address that a device's folder is named after; None for other buses."""
    name = os.path.realpath(device).rpartition("/")[2]
    return name if _PCI_ADDRESS.fullmatch(name) else None


def is_pci_address(name: str) -> bool:
    """Whether `name` is of the form domain:bus:device.function."""
    return _PCI_ADDRESS.fullmatch(name) is not None


def memory(device: Path) -> Memory:
    """The memory of the card with that device folder; None for what the driver does not tell."""
    vram, used, gtt = (
        reading.size(reading.text(device / f"mem_info_{key}"))
        for key in ("vram_total", "vram_used", "gtt_total")
    )
    return Memory(vram=vram or None, vram_used=used, gtt=gtt or None)


def has_carve_out(device: Path) -> bool:
    """Whether the firmware sets memory aside for this card, as it does for integrated ones only.

    Only kernels since 2026 have the folder `uma`.
    """
    return reading.kind(device / "uma") == stat.S_IFDIR
