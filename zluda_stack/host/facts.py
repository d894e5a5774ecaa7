"""What is true of a host: read once by the probe, saved and replayed as JSON.

Every field that could not be read is None or empty: a fact is either known or absent, never
guessed. `resolve` takes a HostFacts and nothing else from the machine.
"""

from __future__ import annotations

from msgspec import Struct


class DeviceNode(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A character device under /dev, as stat() shows it.

    `accessible` is whether this user may read and write it; `vendor` the PCI vendor id of the
    card behind a render node (0x1002 is AMD), None for /dev/kfd or when sysfs does not tell.
    """

    path: str
    gid: int
    accessible: bool
    vendor: int | None = None


class GpuFacts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One GPU node of the KFD topology.

    `pci` is domain:bus:device.function; memory is in bytes; `render_node` is None when the
    topology names a minor that does not exist under /dev/dri.
    """

    kfd_node: int
    gfx_target: str | None
    name: str | None = None
    pci: str | None = None
    device_id: int | None = None
    unique_id: str | None = None
    render_node: str | None = None
    vram_bytes: int | None = None
    gtt_bytes: int | None = None
    integrated: bool | None = None


class DockerFacts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The Docker command line and the engine behind its current context.

    `problem` says in the engine's own words why it did not answer; None when it did.
    """

    client_version: str | None = None
    engine_version: str | None = None
    compose_version: str | None = None
    context: str | None = None
    operating_system: str | None = None
    problem: str | None = None


class EmbeddedFacts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whether the packages of the extra `embedded` can be imported by this interpreter."""

    server_version: str | None = None
    missing: tuple[str, ...] = ()


class RunningStack(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A stack of ours that holds a port now."""

    name: str
    port: int


class LocalModelFacts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The GGUF file that the settings name by path, as its own header describes it.

    `problem` says why it cannot be used (missing, not GGUF, damaged); the rest is then None.
    """

    path: str
    size: int | None = None
    name: str | None = None
    architecture: str | None = None
    context_length: int | None = None
    chat_template: bool | None = None
    problem: str | None = None


class HostFacts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything a plan may depend on.

    `environment` holds only the GPU variables that the user has set (never others), and
    `listening_ports` the TCP ports in use on any local address.
    """

    schema: int = 1
    system: str
    machine: str
    kernel: str
    cpu_count: int
    memory_bytes: int | None = None
    wsl: bool = False
    kfd: DeviceNode | None = None
    dri_exists: bool = False
    render_nodes: tuple[DeviceNode, ...] = ()
    gpus: tuple[GpuFacts, ...] = ()
    docker: DockerFacts = DockerFacts()
    embedded: EmbeddedFacts = EmbeddedFacts()
    environment: dict[str, str] = {}
    listening_ports: tuple[int, ...] = ()
    running: tuple[RunningStack, ...] = ()
    local_model: LocalModelFacts | None = None
