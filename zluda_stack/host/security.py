"""SELinux and AppArmor, as the kernel shows them in sysfs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from zluda_stack.host import reading
from zluda_stack.host.facts import SecurityFacts

_SELINUX = "sys/fs/selinux"
_ACTIVE_MODULES = "sys/kernel/security/lsm"
_APPARMOR = "sys/module/apparmor/parameters/enabled"


def read_security(root: Path) -> SecurityFacts:
    """What is enforced here; None where the kernel does not show it, as in many containers."""
    boolean = reading.text(root / _SELINUX / "booleans/container_use_devices").split()
    apparmor = reading.text(root / _APPARMOR).strip()
    return SecurityFacts(
        selinux=_selinux(root),
        container_devices=boolean[0] == "1" if boolean else None,
        apparmor=apparmor == "Y" if apparmor else None,
    )


def _selinux(root: Path) -> Literal["enforcing", "permissive", "disabled"] | None:
    enforce = reading.text(root / _SELINUX / "enforce").strip()
    if enforce in ("0", "1"):
        return "enforcing" if enforce == "1" else "permissive"
    active = reading.text(root / _ACTIVE_MODULES).strip()
    if active and "selinux" not in active.split(","):
        return "disabled"
    return None
