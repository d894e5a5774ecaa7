"""How the chosen cards get into their containers, and what stands in the way on this host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from zluda_stack.host.facts import DeviceNode, HostFacts
from zluda_stack.plan.gpu_reach import CPU_WAY
from zluda_stack.plan.types import Decision, GpuDevice, Notice
from zluda_stack.settings import Configured

Way = Literal["devices", "cdi", "runtime"]
RUNTIME = "amd"
_CDI_KIND = "amd.com/gpu"
# The gid that stands for every group that a user namespace does not know (user_namespaces(7)).
_UNMAPPED = 65534
_OPEN_TO_ALL = 0o006
_OPEN_TO_GROUP = 0o060
_THIS_ENGINE = "Use the engine of this machine: docker context use default"


class Passthrough(Struct, frozen=True, kw_only=True):
    """`names` are what AMD's toolkit calls the cards, in their order; None for one it lacks.

    With `keep_groups` the containers keep the groups of the user who starts them, which only
    Podman can; else they are given the numeric gids of the device nodes.
    """

    way: Way = "devices"
    keep_groups: bool = False
    names: tuple[str | None, ...] = ()
    decisions: tuple[Decision, ...] = ()
    warnings: tuple[Notice, ...] = ()
    unmet: tuple[Notice, ...] = ()


def choose_passthrough(
    facts: HostFacts, configured: Configured, gpus: tuple[GpuDevice, ...]
) -> Passthrough:
    """The way for `gpus`; for cards of another machine only what the settings say.

    Left to itself it is always the device nodes: they need no toolkit, and CDI and the runtime
    add no groups either, so they would spare nothing.
    """
    if not gpus:
        return Passthrough()
    wish = configured.settings.passthrough
    way: Way = "devices" if wish == "auto" else wish
    because = "the default"
    if configured.given("passthrough"):
        because = f"given ({configured.origin('passthrough')})"
    decisions = (Decision(what="passthrough", value=way, because=because),)
    if any(gpu.render_node is None for gpu in gpus):
        return Passthrough(way=way, names=(None,) * len(gpus), decisions=decisions)
    podman = _is_podman(facts)
    return Passthrough(
        way=way,
        keep_groups=podman and _is_rootless(facts),
        names=tuple(_name(facts, way, gpu) for gpu in gpus),
        decisions=decisions,
        warnings=(_PODMAN,) if podman else (),
        unmet=(*_engine_obstacles(facts, gpus), *_way_obstacles(facts, way, gpus)),
    )


_PODMAN = Notice(
    code="podman",
    message="the docker command here is Podman's, and nobody has shown that this stack runs on it",
    hint="Docker Engine is the way that is tested.",
)


def _is_podman(facts: HostFacts) -> bool:
    return facts.docker.emulated_by == "podman"


def _is_rootless(facts: HostFacts) -> bool:
    if facts.docker.rootless is None and _is_podman(facts) and facts.podman is not None:
        return facts.podman.rootless is True
    return facts.docker.rootless is True


def _engine_obstacles(facts: HostFacts, gpus: tuple[GpuDevice, ...]) -> Iterator[Notice]:
    """What keeps this engine from the cards, whatever the way."""
    docker = facts.docker
    cards = ", ".join(gpu.name or gpu.target for gpu in gpus)
    if docker.desktop:
        yield Notice(
            code="docker-desktop",
            message=(
                f"the Docker context {docker.context} is Docker Desktop: its engine is in a "
                f"virtual machine that has neither /dev/kfd nor {cards}"
            ),
            hint=f"{_THIS_ENGINE} (install Docker Engine beside it if there is none). {CPU_WAY}",
        )
    elif docker.remote:
        yield Notice(
            code="docker-remote",
            message=f"the engine of the Docker context {docker.context} is on another machine, "
            f"and {cards} is in this one",
            hint=f"{_THIS_ENGINE} (and unset DOCKER_HOST), or run zluda-stack over there.",
        )
    elif _is_rootless(facts):
        yield from _rootless_obstacles(facts, gpus)
    elif any(node.gid == _UNMAPPED for node in _nodes(facts, gpus)):
        yield Notice(
            code="unmapped-group",
            message=f"the device nodes belong to gid {_UNMAPPED} as seen from here, a user "
            "namespace that hides their real group",
            hint="Run zluda-stack outside of this container or namespace.",
        )
    else:
        yield from _shut_out(_nodes(facts, gpus))


def _shut_out(nodes: tuple[DeviceNode, ...]) -> Iterator[Notice]:
    shut = [node for node in nodes if shuts_out_its_group(node)]
    if shut:
        yield Notice(
            code="group-shut-out",
            message=f"the mode {shut[0].mode or 0:04o} keeps the group out of {_paths(shut)}, and "
            "a container that is not root gets in by the group only",
            hint=f"`zluda-stack doctor` names the command that lets the group in. {CPU_WAY}",
        )


def shuts_out_its_group(node: DeviceNode) -> bool:
    """True when neither the node's group nor everybody may read and write it.

    A mode that is not known is trusted.
    """
    if node.mode is None or node.mode & _OPEN_TO_ALL == _OPEN_TO_ALL:
        return False
    return node.mode & _OPEN_TO_GROUP != _OPEN_TO_GROUP


def _nodes(facts: HostFacts, gpus: tuple[GpuDevice, ...]) -> tuple[DeviceNode, ...]:
    """The device nodes that the cards need, as far as this host has them."""
    wanted = {gpu.render_node for gpu in gpus}
    kfd = () if facts.kfd is None else (facts.kfd,)
    return kfd + tuple(node for node in facts.render_nodes if node.path in wanted)


def _rootless_obstacles(facts: HostFacts, gpus: tuple[GpuDevice, ...]) -> Iterator[Notice]:
    nodes = _nodes(facts, gpus)
    if _is_podman(facts):
        closed = [node for node in nodes if not node.accessible]
        if closed:
            gids = ",".join(sorted({str(node.gid) for node in closed}))
            yield Notice(
                code="podman-access",
                message=f"your user may not open {_paths(closed)}, so its containers may not",
                hint=f'Join the group: sudo usermod -aG {gids} "$USER", then log in again.',
            )
        return
    closed = [node for node in nodes if (node.mode or 0) & _OPEN_TO_ALL != _OPEN_TO_ALL]
    if closed:
        yield Notice(
            code="rootless-docker",
            message=f"this Docker is rootless: in its containers {_paths(closed)} belongs to gid "
            f"{_UNMAPPED}, and no group that they can be given opens it",
            hint=f"{_THIS_ENGINE}, one that root runs; rootless Podman can hand on your groups. "
            f"{CPU_WAY}",
        )


def _paths(nodes: list[DeviceNode]) -> str:
    return " and ".join(node.path for node in nodes)


def _way_obstacles(facts: HostFacts, way: Way, gpus: tuple[GpuDevice, ...]) -> Iterator[Notice]:
    """What AMD's container toolkit lacks for the way that was asked for."""
    if way == "devices":
        return
    docker = facts.docker
    without = "Or leave --passthrough out: the device nodes need no toolkit."
    if _is_podman(facts) or _is_rootless(facts):
        # Compose on Podman drops CDI devices in silence (containers/podman#28436), and AMD's
        # toolkit refuses rootless engines: a GPU that was asked for would become the CPU.
        message = "works with a Docker Engine that root runs only"
        hint = without
    elif way == "runtime" and RUNTIME not in docker.runtimes:
        message = (
            f"needs AMD's container runtime, which this engine has not ({_all(docker.runtimes)})"
        )
        hint = f"Set it up: sudo amd-ctk runtime configure --runtime=docker. {without}"
    elif way == "cdi" and docker.cdi_enabled is False:
        message = "needs CDI, which is switched off in this engine"
        hint = f'Set {{"features": {{"cdi": true}}}} in /etc/docker/daemon.json. {without}'
    elif way == "cdi" and any(_cdi_name(facts, gpu) is None for gpu in gpus):
        message = "needs a CDI specification with a device for each chosen card alone"
        hint = f"Write it: sudo amd-ctk cdi generate --output=/etc/cdi/amd.json. {without}"
    else:
        return
    yield Notice(code=f"passthrough-{way}", message=f"passthrough={way} {message}", hint=hint)


def _all(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "it names none"


def _name(facts: HostFacts, way: Way, gpu: GpuDevice) -> str | None:
    if way == "devices":
        return None
    return _cdi_name(facts, gpu) if way == "cdi" else _runtime_index(facts, gpu)


def _cdi_name(facts: HostFacts, gpu: GpuDevice) -> str | None:
    """The CDI device that passes this card and no other, such as amd.com/gpu=0."""
    for spec in facts.cdi:
        for name, nodes in spec.nodes.items():
            if spec.kind == _CDI_KIND and _render_nodes(nodes) == {gpu.render_node}:
                return f"{spec.kind}={name}"
    return None


def _render_nodes(nodes: tuple[str, ...]) -> set[str]:
    return {node for node in nodes if node.startswith("/dev/dri/renderD")}


def _runtime_index(facts: HostFacts, gpu: GpuDevice) -> str:
    """The card's number for AMD_VISIBLE_DEVICES: that of CDI, or its place by PCI address.

    The toolkit numbers the cards of the amdgpu driver by address, also those that the KFD
    topology does not list (GetAMDGPUs in internal/amdgpu/amdgpu.go of ROCm/container-toolkit).
    """
    known = _cdi_name(facts, gpu)
    if known is not None:
        return known.partition("=")[2]
    drawn = {one.address for one in facts.pci_displays if one.driver == "amdgpu"}
    every = drawn | {one.pci for one in facts.gpus if one.pci is not None}
    return str(sorted(every).index(gpu.pci)) if gpu.pci in every else str(gpu.index)
