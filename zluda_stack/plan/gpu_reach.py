"""What keeps the GPUs of a host out of reach, and what is said then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import structs

from zluda_stack.errors import DeviceMissing
from zluda_stack.host.facts import DeviceNode, HostFacts, PciDisplay
from zluda_stack.plan.gpu_card import Card
from zluda_stack.plan.types import Notice, SkippedGpu

CPU_WAY = "To run on the CPU instead: `zluda-stack up --engine embedded`."
WSL = "this is WSL2, which has no /dev/kfd"
# Source: AMD's librocdxg, which opens /dev/dxg in the place of /dev/kfd.
WSL_WAY = (
    "On WSL2 a card is reached by /dev/dxg, librocdxg and HSA_ENABLE_DXG_DETECTION=1. With ZLUDA "
    f"that is unproven, and this version does not build it. {CPU_WAY}"
)
_AMD_VENDOR = 0x1002
_DRIVER = "amdgpu"
_REACH_HINT = (
    "Load the amdgpu kernel driver; inside a container, pass /dev/kfd and the render node "
    f"through. {CPU_WAY}"
)


def without_cpu_way(hint: str, instead: str = "") -> str:
    """`hint` for a command that is not `up`, to which the embedded engine is of no use.

    `instead` is the sentence in the place of that way.
    """
    return hint.replace(CPU_WAY, instead).strip()


def for_no_server(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """`notices` for a command that starts no server."""
    return tuple(structs.replace(one, hint=without_cpu_way(one.hint)) for one in notices)


def is_wsl_alone(facts: HostFacts) -> bool:
    """True on WSL2 without the compute device of the amdgpu driver (case C09)."""
    return facts.wsl and facts.kfd is None


def wsl_notice(facts: HostFacts) -> tuple[Notice, ...]:
    """That a card of Windows is not used, and what its way would be; nothing elsewhere."""
    if not is_wsl_alone(facts):
        return ()
    return (Notice(code="wsl", message=f"{WSL}: the cards of Windows are not used", hint=WSL_WAY),)


def refuse_unreachable(facts: HostFacts, card: Card) -> None:
    """A Radeon card that is there must not turn into a CPU run in silence (case C12)."""
    if facts.kfd is None:
        missing = "/dev/kfd is missing"
    elif not facts.dri_exists:
        missing = "/dev/kfd is there, but /dev/dri is not"
    elif card.facts.render_node is None:
        missing = "its render node under /dev/dri is missing"
    else:
        return
    raise DeviceMissing(f"{card.label} cannot be used: {missing}", _REACH_HINT)


def refuse_hidden(facts: HostFacts) -> None:
    """Nor must one whose driver or container does not show it."""
    if facts.kfd is not None and not facts.dri_exists:
        raise DeviceMissing(
            "/dev/kfd is there, but /dev/dri is not: a GPU was meant to be reachable here",
            _REACH_HINT,
        )
    if facts.kfd is not None and facts.hidden_nodes and not facts.gpus:
        raise DeviceMissing(
            "/dev/kfd is there, but the device cgroup of this container hides every GPU",
            _REACH_HINT,
        )
    nodes = [node.path for node in amdgpu_nodes(facts)]
    if nodes and facts.kfd is None:
        raise DeviceMissing(
            f"an AMD card is there ({', '.join(nodes)}), but /dev/kfd is not", _REACH_HINT
        )


def amdgpu_nodes(facts: HostFacts) -> tuple[DeviceNode, ...]:
    """The render nodes of AMD's cards, but for those that another driver is known to have made.

    The cards of the older driver radeon have render nodes too, and never a /dev/kfd.
    """
    drivers = {display.address: display.driver for display in facts.pci_displays}
    return tuple(
        node
        for node in facts.render_nodes
        if node.vendor == _AMD_VENDOR and drivers.get(node.pci or "", _DRIVER) == _DRIVER
    )


def why_no_gpu(facts: HostFacts, skipped: Iterable[SkippedGpu]) -> str:
    """Why the CPU is used where nobody asked for it."""
    passed_over: dict[str, list[str]] = {}
    for entry in skipped:
        passed_over.setdefault(entry.reason, []).append(entry.gpu)
    if passed_over:
        return "; ".join(_not_usable(names, reason) for reason, names in passed_over.items())
    if is_wsl_alone(facts):
        return WSL
    if facts.kfd is None:
        return "this machine has no /dev/kfd"
    return "the KFD topology lists no GPU"


def _not_usable(names: list[str], reason: str) -> str:
    if len(names) == 1:
        return f"{names[0]} is not usable: {reason}"
    return f"{names[0]} and {len(names) - 1} more are not usable: {reason}"


def outside_kfd(facts: HostFacts) -> Iterator[SkippedGpu]:
    """AMD's cards on the PCI bus that the compute driver does not offer, and why."""
    offered = {gpu.pci for gpu in facts.gpus}
    for display in facts.pci_displays:
        if display.vendor == _AMD_VENDOR and display.address not in offered:
            name = display.name or f"the AMD display {_AMD_VENDOR:04x}:{display.device:04x}"
            yield SkippedGpu(
                gpu=f"{name} at {display.address}", reason=_why_outside(facts, display)
            )


def _why_outside(facts: HostFacts, display: PciDisplay) -> str:
    if display.driver is None:
        because = " (nomodeset)" if "nomodeset" in facts.kernel_options else ""
        return f"no kernel driver is bound to it{because}"
    if display.driver != _DRIVER:
        return f"its kernel driver is {display.driver}, and not {_DRIVER}"
    if facts.hidden_nodes:
        return "the device cgroup of this container hides it"
    return f"the {_DRIVER} driver does not offer it for computing"
