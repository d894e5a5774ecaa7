"""Device nodes and sockets: who owns them, and whether this user may use them."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from zluda_stack.host import drm, reading
from zluda_stack.host.facts import DeviceNode

_ACL = "system.posix_acl_access"
_RENDER_NODE = re.compile(r"renderD[0-9]{1,6}")


def device_node(root: Path, path: str) -> DeviceNode | None:
    """The node or socket at `path`; None when there is none or it cannot be seen."""
    real = root / path.lstrip("/")
    try:
        found = real.stat()
        accessible = os.access(real, os.R_OK | os.W_OK)
    except (OSError, ValueError):
        return None
    device = drm.device_folder(root, real.name)
    return DeviceNode(
        path=path,
        uid=found.st_uid,
        gid=found.st_gid,
        mode=stat.S_IMODE(found.st_mode),
        accessible=accessible,
        acl=_has_acl(real),
        vendor=reading.hexadecimal(reading.text(device / "vendor")),
        pci=drm.pci_address(device),
    )


def render_nodes(root: Path) -> tuple[DeviceNode, ...]:
    """Every /dev/dri/renderD*, by number."""
    found = [name for name in reading.listing(root / "dev/dri") if _RENDER_NODE.fullmatch(name)]
    found.sort(key=lambda name: (len(name), name))
    nodes = (device_node(root, f"/dev/dri/{name}") for name in found)
    return tuple(node for node in nodes if node is not None)


def _has_acl(path: Path) -> bool | None:
    """Whether more than owner, group and mode decide; logind gives the seat's user such an ACL."""
    try:
        return bool(os.getxattr(path, _ACL))
    except OSError as error:
        return False if error.errno == errno.ENODATA else None
