"""The amdgpu driver, what the kernel was told of graphics at boot, and ROCm where it is."""

from __future__ import annotations

import stat
from pathlib import Path

from zluda_stack.host import reading
from zluda_stack.host.facts import DriverFacts

_MODULE = "sys/module/amdgpu"
_ROCM_VERSION = "opt/rocm/.info/version"
_LONGEST_VERSION = 64
_LONGEST_OPTION = 256
_OPTIONS = ("nomodeset", "iommu", "amd_iommu", "intel_iommu", "pci", "vga", "video")
_MODULES = ("amdgpu", "radeon", "ttm", "amdttm", "drm", "iommu", "vfio-pci", "vfio_pci")
_BLACKLISTS = ("modprobe.blacklist", "module_blacklist", "rd.driver.blacklist")


def read_driver(root: Path) -> DriverFacts:
    """Whether amdgpu is in the kernel, and its version where AMD's own packages brought it."""
    module = root / _MODULE
    return DriverFacts(
        loaded=reading.kind(module) == stat.S_IFDIR,
        version=_first_word(reading.text(module / "version")),
    )


def rocm_version(root: Path) -> str | None:
    """The version of the ROCm that is installed on the host, which is not needed."""
    return _first_word(reading.text(root / _ROCM_VERSION))


def kernel_options(root: Path) -> tuple[str, ...]:
    """The options of the kernel's command line that concern graphics or the IOMMU, in order."""
    words = reading.text(root / "proc/cmdline").split()
    return tuple(word[:_LONGEST_OPTION] for word in words if _concerns_graphics(word))


def _concerns_graphics(word: str) -> bool:
    key, _, value = word.partition("=")
    if key in _BLACKLISTS:
        return "amdgpu" in value.split(",")
    return key in _OPTIONS or key.partition(".")[0] in _MODULES


def _first_word(text: str) -> str | None:
    word = next(iter(text.split()), "")[:_LONGEST_VERSION]
    return word if word.isprintable() and word else None
