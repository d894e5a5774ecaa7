"""What the measuring machine is, without what it is called."""

from __future__ import annotations

import re
from pathlib import Path

from zluda_stack.bench.saved import Machine
from zluda_stack.host import reading
from zluda_stack.host.facts import HostFacts

_MODEL_NAME = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)


def machine(facts: HostFacts, cpuinfo: Path = Path("/proc/cpuinfo")) -> Machine:
    """The machine of `facts`, with the name of its CPU where the kernel tells it."""
    cpu = _MODEL_NAME.search(reading.text(cpuinfo))
    return Machine(
        system=facts.system,
        machine=facts.machine,
        kernel=facts.kernel,
        cpu=cpu[1].strip() if cpu else None,
        cpu_count=facts.cpu_count,
        memory=facts.memory_bytes,
        cards=tuple(gpu.name or gpu.gfx_target or "unknown" for gpu in facts.gpus),
    )
