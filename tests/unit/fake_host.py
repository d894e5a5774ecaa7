"""Fake hosts: a KFD and DRM tree laid out under a temporary folder, one file as the kernel has it.

No AMD GPU exists where these tests run, so the trees are fakes; their keys and values are those
of real nodes.
"""

from __future__ import annotations

from pathlib import Path

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
        return self._write("dev/kfd", "")

    def with_node(
        self, number: int, properties: dict[str, int], vram_bytes: int | None = None
    ) -> FakeHost:
        """Add a topology node, with one memory bank on the card when `vram_bytes` is given."""
        node = f"sys/class/kfd/kfd/topology/nodes/{number}"
        text = "".join(f"{key} {value}\n" for key, value in properties.items())
        self._write(f"{node}/properties", text)
        if vram_bytes is not None:
            bank = f"heap_type 1\nsize_in_bytes {vram_bytes}\nflags 0\nwidth 384\n"
            self._write(f"{node}/mem_banks/0/properties", bank)
        return self

    def with_render_node(
        self, minor: int, vendor: int = 0x1002, gtt_bytes: int | None = None
    ) -> FakeHost:
        """Add /dev/dri/renderD<minor> and its sysfs device."""
        self._write(f"dev/dri/renderD{minor}", "")
        device = f"sys/class/drm/renderD{minor}/device"
        if gtt_bytes is not None:
            self._write(f"{device}/mem_info_gtt_total", f"{gtt_bytes}\n")
        return self._write(f"{device}/vendor", f"{vendor:#06x}\n")

    def with_listeners(self, *ports: int) -> FakeHost:
        """Add a /proc/net/tcp in which `ports` listen on 127.0.0.1."""
        head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n"
        rows = (f"   0: 0100007F:{port:04X} 00000000:0000 0A 0:0 00:0 0\n" for port in ports)
        established = "   9: 0100007F:1F40 0100007F:C350 01 0:0 00:0 0\n"
        return self._write("proc/net/tcp", head + "".join(rows) + established)

    def _write(self, path: str, text: str) -> FakeHost:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return self
