"""Product names of PCI devices: from libdrm's list of AMD's cards, else from the PCI ID list.

Both lists belong to the system (packages libdrm and pci.ids or hwdata); without them there are no
names. libdrm's tells apart by revision what shares a device id: an RX 7900 XTX from an XT.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

from zluda_stack.host import reading

_AMD = 0x1002
_PCI_IDS = ("usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids")
_AMDGPU_IDS = ("usr/share/libdrm/amdgpu.ids", "opt/amdgpu/share/libdrm/amdgpu.ids")
# 1.5 MB and 40 kB in 2026.
_MOST = 8 << 20
LONGEST = 128
_NEXT_VENDOR = re.compile(rb"\n[^\t#\n]")
# "Navi 31 [Radeon RX 7900 XT/7900 XTX]": the chip, then what it is sold as.
_SOLD_AS = re.compile(r"\[([^\[\]]+)\]$")


class Names:
    """Looks names up in the lists under `root`, each read at most once and only when needed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find(self, vendor: int, device: int, revision: int | None) -> str | None:
        """What the device is sold as; None when the lists do not tell."""
        exact = None
        if vendor == _AMD and revision is not None:
            exact = _line_after(self._amdgpu_ids, rb"(?mi)^%04x,\s*%02x,\s*" % (device, revision))
        return exact or self._general(vendor, device)

    def _general(self, vendor: int, device: int) -> str | None:
        start = self._pci_ids.find(b"\n%04x  " % vendor)
        if start < 0:
            return None
        end = _NEXT_VENDOR.search(self._pci_ids, start + 1)
        section = self._pci_ids[start : end.start() if end else None]
        name = _line_after(section, rb"(?m)^\t%04x  " % device)
        sold_as = _SOLD_AS.search(name) if name else None
        return sold_as[1] if sold_as else name

    @cached_property
    def _pci_ids(self) -> bytes:
        return b"\n" + self._first_of(_PCI_IDS)

    @cached_property
    def _amdgpu_ids(self) -> bytes:
        return self._first_of(_AMDGPU_IDS)

    def _first_of(self, paths: tuple[str, ...]) -> bytes:
        for path in paths:
            try:
                return reading.read(self._root / path, _MOST)
            except OSError:
                continue
        return b""


def _line_after(data: bytes, start: bytes) -> str | None:
    match = re.search(start + rb"([^\n]*)", data)
    return match[1].decode(errors="replace").strip()[:LONGEST] or None if match else None
