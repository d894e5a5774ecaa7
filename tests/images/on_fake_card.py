"""`zluda-stack` as the user 1234 of a machine with a fake Radeon card: python -m ... ROOT ARGUMENTS

ROOT is the folder of the fake device nodes. All else is the real program on the real engine.
"""

from __future__ import annotations

import os
import sys
import tempfile
from unittest import mock

from msgspec import structs

from tests.unit.planning import card, machine
from zluda_stack.cli import context
from zluda_stack.cli.main import main
from zluda_stack.host.facts import DeviceNode, HostFacts
from zluda_stack.plan import run
from zluda_stack.plan.types import Plan

UID, GID = 1234, 1235
KFD_GID, RENDER_GID = 148, 993


def fake_machine() -> HostFacts:
    """A desktop with one RX 7900 XTX at renderD129."""
    only = card("gfx1100", render_node="/dev/dri/renderD129")
    kfd = DeviceNode(path="/dev/kfd", gid=KFD_GID, accessible=True, mode=0o660)
    return structs.replace(machine(only, gid=RENDER_GID), kfd=kfd)


def _with_fake_nodes(plan: Plan, root: str) -> Plan:
    """`plan` with the device nodes under `root` in the place of this machine's."""
    values = plan.host_environment | {"HOST_ROOT": root}
    return structs.replace(plan, host_environment=values)


def _owned_by_the_user(folder: str) -> str:
    os.chown(folder, UID, GID)
    return folder


if __name__ == "__main__":
    where, *arguments = sys.argv[1:]
    planned, made = run.gpu_plan, tempfile.mkdtemp
    stand_ins = {
        (context, "facts"): lambda *_: fake_machine(),
        (run, "gpu_plan"): lambda *given: _with_fake_nodes(planned(*given), where),
        (os, "getuid"): lambda: UID,
        (os, "getgid"): lambda: GID,
        (tempfile, "mkdtemp"): lambda *given: _owned_by_the_user(made(*given)),
        (sys, "argv"): ["zluda-stack"],
    }
    for (module, name), stand_in in stand_ins.items():
        mock.patch.object(module, name, stand_in).start()
    sys.exit(main(arguments))
