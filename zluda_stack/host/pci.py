"""The displays and accelerators on the PCI bus, of any vendor and whether or not a driver runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from zluda_stack.host import drm, reading
from zluda_stack.host.facts import PciDisplay
from zluda_stack.host.names import LONGEST, Names

_DEVICES = "sys/bus/pci/devices"
# The base classes "display controller" and "processing accelerator" of the PCI code list.
_CLASSES = (0x03, 0x12)


def device_folder(root: Path, address: str) -> Path:
    """The sysfs folder of the PCI device at that address."""
    return root / _DEVICES / address


def displays(root: Path, names: Names) -> tuple[PciDisplay, ...]:
    """Every display and accelerator, by address."""
    return tuple(_displays(root, names))


def name(device: Path, names: Names) -> str | None:
    """What the device of that folder is sold as: in the driver's words, else in the lists'."""
    vendor, model, revision = (_number(device / key) for key in ("vendor", "device", "revision"))
    told = reading.text(device / "product_name").strip()
    if told and told.isprintable():
        return told[:LONGEST]
    return None if vendor is None or model is None else names.find(vendor, model, revision)


def _displays(root: Path, names: Names) -> Iterator[PciDisplay]:
    for address in filter(drm.is_pci_address, reading.listing(root / _DEVICES)):
        device = device_folder(root, address)
        code = _number(device / "class")
        if code is None or code >> 16 not in _CLASSES:
            continue
        vendor, model = _number(device / "vendor"), _number(device / "device")
        if vendor is None or model is None:
            continue
        yield PciDisplay(
            address=address,
            vendor=vendor,
            device=model,
            driver=reading.link_name(device / "driver"),
            name=name(device, names),
        )


def _number(path: Path) -> int | None:
    return reading.hexadecimal(reading.text(path))
