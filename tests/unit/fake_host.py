"""Fake hosts: a tree that stands for / of a machine, under a temporary folder.

No AMD GPU exists where these tests run, so the trees are fakes; their keys and values are those
of real nodes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

RX_7900_XTX = {
    "cpu_cores_count": 0,
    "simd_count": 192,
    "mem_banks_count": 1,
    "caches_count": 206,
    "io_links_count": 1,
    "max_waves_per_simd": 16,
    "lds_size_in_kb": 64,
    "wave_front_size": 32,
    "array_count": 12,
    "simd_arrays_per_engine": 2,
    "cu_per_simd_array": 8,
    "simd_per_cu": 2,
    "gfx_target_version": 110000,
    "vendor_id": 4098,
    "device_id": 29772,
    "location_id": 34304,
    "domain": 0,
    "drm_render_minor": 128,
    "num_sdma_engines": 2,
    "num_cp_queues": 8,
    "max_engine_clk_fcompute": 2482,
    "local_mem_size": 0,
    "unique_id": 11673270660693242239,
}
CPU = {"cpu_cores_count": 16, "simd_count": 0, "gfx_target_version": 0, "drm_render_minor": 0}


class FakeHost:
    """A tree that stands for / of some machine."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def with_kfd(self) -> FakeHost:
        """Add /dev/kfd (a plain file: the probe only stats it)."""
        return self.write("dev/kfd", "")

    def with_node(
        self, number: int, properties: dict[str, int], vram_bytes: int | None = None
    ) -> FakeHost:
        """Add a topology node, with one memory bank on the card when `vram_bytes` is given."""
        node = f"sys/class/kfd/kfd/topology/nodes/{number}"
        text = "".join(f"{key} {value}\n" for key, value in properties.items())
        self.write(f"{node}/properties", text)
        if vram_bytes is not None:
            bank = f"heap_type 1\nsize_in_bytes {vram_bytes}\nflags 0\nwidth 384\n"
            self.write(f"{node}/mem_banks/0/properties", bank)
        return self

    def with_render_node(
        self,
        minor: int,
        vendor: int = 0x1002,
        gtt_bytes: int | None = None,
        pci: str | None = None,
    ) -> FakeHost:
        """Add /dev/dri/renderD<minor> and its sysfs device, a link when `pci` is given."""
        self.write(f"dev/dri/renderD{minor}", "")
        device = f"sys/class/drm/renderD{minor}/device"
        if pci is not None:
            return self.link(device, f"../../../bus/pci/devices/{pci}")
        if gtt_bytes is not None:
            self.write(f"{device}/mem_info_gtt_total", f"{gtt_bytes}\n")
        return self.write(f"{device}/vendor", f"{vendor:#06x}\n")

    def with_pci(
        self, address: str, vendor: int, device: int, driver: str | None = None, **files: object
    ) -> FakeHost:
        """Add a display at `address`; `files` are further files of its folder in sysfs."""
        folder = f"sys/bus/pci/devices/{address}"
        known = {"class": "0x030000", "vendor": f"{vendor:#06x}", "device": f"{device:#06x}"}
        for name, value in (known | files).items():
            self.write(f"{folder}/{name}", f"{value}\n")
        if driver is not None:
            self.link(f"{folder}/driver", f"../../../../bus/pci/drivers/{driver}")
        return self

    def with_listeners(self, *ports: int) -> FakeHost:
        """Add a /proc/net/tcp in which `ports` listen on 127.0.0.1."""
        head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n"
        rows = (f"   0: 0100007F:{port:04X} 00000000:0000 0A 0:0 00:0 0\n" for port in ports)
        established = "   9: 0100007F:1F40 0100007F:C350 01 0:0 00:0 0\n"
        return self.write("proc/net/tcp", head + "".join(rows) + established)

    def write(self, path: str, content: str | bytes) -> FakeHost:
        """Add any other file."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return self

    def link(self, path: str, target: str) -> FakeHost:
        """Add a symbolic link, which may dangle."""
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        return self


@contextmanager
def denied(*paths: Path) -> Iterator[None]:
    """Answer EPERM for these files, as the kernel does for the nodes that a device cgroup hides.

    Permissions cannot stand for that: root reads what has none.
    """
    real_open = os.open

    def fake_open(path: Any, *arguments: Any, **options: Any) -> int:
        if path in paths:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        return real_open(path, *arguments, **options)

    with mock.patch.object(os, "open", fake_open):
        yield
