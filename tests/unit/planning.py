"""Plans for tests: a snapshot or a made-up machine, settings by keyword, the real catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from zluda_stack.catalog.load import load
from zluda_stack.errors import PlanRefused
from zluda_stack.host.facts import DeviceNode, GpuFacts, HostFacts
from zluda_stack.plan import Plan
from zluda_stack.plan.resolve import resolve
from zluda_stack.settings import Configured, Origin, Settings

CASES = Path(__file__).parent.parent / "cases"
AMD = 0x1002
GIB = 1 << 30


def host(case: str) -> HostFacts:
    """The snapshot tests/cases/<case>.json."""
    return msgspec.json.decode((CASES / f"{case}.json").read_bytes(), type=HostFacts)


def card(target: str | None, number: int = 0, *, gib: int = 16, **known: Any) -> GpuFacts:
    """The card `number` of a machine: at bus 3 + number, with the render node 128 + number."""
    facts: dict[str, Any] = {
        "pci": f"0000:{3 + number:02x}:00.0",
        "render_node": f"/dev/dri/renderD{128 + number}",
        "vram_bytes": gib * GIB,
        "gtt_bytes": 32 * GIB,
    }
    return GpuFacts(kfd_node=1 + number, gfx_target=target, **facts | known)


def machine(*cards: GpuFacts, gid: int = 109, mode: int = 0o660, **changes: Any) -> HostFacts:
    """A desktop with Docker Engine and these cards; their nodes belong to `gid`."""
    nodes = tuple(
        DeviceNode(path=gpu.render_node, gid=gid, accessible=True, vendor=AMD, mode=mode)
        for gpu in cards
        if gpu.render_node is not None
    )
    kfd = DeviceNode(path="/dev/kfd", gid=gid, accessible=True, mode=mode)
    own = {"gpus": cards, "render_nodes": nodes, "kfd": kfd, "pci_displays": ()}
    return structs.replace(host("radeon-rx-7900-xtx"), **own | changes)


def configured(**flags: Any) -> Configured:
    """Settings as if each keyword had been given as a flag."""
    origins = {key: Origin(kind="flag", where=f"--{key}") for key in flags}
    return Configured(settings=msgspec.convert(flags, Settings), origins=origins)


def plan_for(facts: HostFacts, **flags: Any) -> Plan:
    """The plan for a host with these flags."""
    return resolve(facts, configured(**flags), load())


def refusal(facts: HostFacts | str, **flags: Any) -> str:
    """What a plan that must be refused says, with its hint; `facts` may be the name of a case."""
    with pytest.raises(PlanRefused) as refused:
        plan_for(host(facts) if isinstance(facts, str) else facts, **flags)
    assert refused.value.hint
    return f"{refused.value.message} | {refused.value.hint}"


def codes(plan: Plan) -> list[str]:
    """The codes of what the machine lacks, but for NVIDIA's terms, which nobody accepted here."""
    return [notice.code for notice in plan.unmet if notice.code != "terms"]
