"""Memory, distribution and container: what this machine is beside its graphics."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from zluda_stack.host import reading

_LONGEST_NAME = 128
# The words of /run/systemd/container and of the variable `container`, after systemd-detect-virt(1)
# and the Container Interface (https://systemd.io/CONTAINER_INTERFACE).
_MANAGERS = {
    "docker": "docker",
    "podman": "podman",
    "lxc": "lxc",
    "lxc-libvirt": "lxc",
    "systemd-nspawn": "systemd-nspawn",
}


def memory(root: Path, key: str) -> int | None:
    """A line of /proc/meminfo (MemTotal, MemAvailable) in bytes."""
    text = reading.text(root / "proc/meminfo")
    line = re.search(rf"^{key}: *([0-9]{{1,15}}) kB$", text, re.MULTILINE)
    return int(line[1]) * 1024 if line else None


def distribution(root: Path) -> str | None:
    """The PRETTY_NAME of os-release(5)."""
    for path in ("etc/os-release", "usr/lib/os-release"):
        for line in reading.text(root / path).splitlines():
            key, _, value = line.partition("=")
            if key == "PRETTY_NAME":
                return _unquoted(value)
    return None


def container(root: Path, environ: Mapping[str, str]) -> str | None:
    """The kind of container that this runs in; None for none, or none that shows itself."""
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if reading.kind(root / "run/.containerenv"):
        return "podman"
    if reading.kind(root / ".dockerenv"):
        return "docker"
    told = reading.text(root / "run/systemd/container").strip() or environ.get("container", "")
    return _MANAGERS.get(told)


def _unquoted(value: str) -> str | None:
    try:
        words = shlex.split(value)
    except ValueError:
        return None
    name = " ".join(words)[:_LONGEST_NAME]
    return name if name and name.isprintable() else None
