"""What is true of a host: read once by the probe, saved and replayed as JSON.

Every field that could not be read is None or empty: a fact is either known or absent, never
guessed. `resolve` takes a HostFacts and nothing else from the machine.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from zluda_stack.models.architecture import Architecture


class DeviceNode(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A device node or socket, as stat() shows it.

    `accessible` is whether this user may read and write it (by owner, group or ACL); `mode` the
    permission bits; `vendor` the PCI vendor id of the card behind a render node (0x1002 is AMD),
    None for other nodes or when sysfs does not tell; `pci` that card's address.
    """

    path: str
    gid: int
    accessible: bool
    vendor: int | None = None
    uid: int | None = None
    mode: int | None = None
    acl: bool | None = None
    pci: str | None = None


class GpuFacts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One GPU node of the KFD topology.

    `pci` is domain:bus:device.function; memory is in bytes; `render_node` is None when the
    topology names a minor that does not exist under /dev/dri or is another card's. `name` is
    the product's name of the driver or of the system's lists, None when none tells.
    `integrated` is True when the kernel shows it; it never shows that a card is discrete.
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
    vram_used_bytes: int | None = None


class PciDisplay(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A display controller or accelerator on the PCI bus, of any vendor.

    `driver` is the kernel driver that is bound to it (amdgpu, vfio-pci, nvidia, ...), None for
    none.
    """

    address: str
    vendor: int
    device: int
    driver: str | None = None
    name: str | None = None


class DriverFacts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The amdgpu kernel driver. `version` is told by AMD's own packages (DKMS) only."""

    loaded: bool = False
    version: str | None = None


class UserFacts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who runs this: the numeric groups of this process, and those of a few known names.

    `groups` holds the gids of `render`, `video` and `docker` as far as this host has them;
    `configured_gids` the groups of the user in the system's files, which a session that is older
    than the change does not have yet.
    """

    root: bool = False
    gids: tuple[int, ...] = ()
    configured_gids: tuple[int, ...] = ()
    groups: dict[str, int] = {}


class SecurityFacts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """SELinux and AppArmor. `container_devices` is SELinux's boolean container_use_devices."""

    selinux: Literal["enforcing", "permissive", "disabled"] | None = None
    container_devices: bool | None = None
    apparmor: bool | None = None


class CdiSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A CDI specification for AMD's cards: its file, and the names of its devices.

    `kind` is such as amd.com/gpu; `nodes` maps a device's name to the device nodes it passes.
    """

    path: str
    kind: str
    devices: tuple[str, ...] = ()
    nodes: dict[str, tuple[str, ...]] = {}


class PodmanFacts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The podman command, None fields when it did not answer.

    `problem` is looked for only where there is no docker command.
    """

    version: str | None = None
    rootless: bool | None = None
    compose_version: str | None = None
    problem: str | None = None


class NetworkFacts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What stands between this host and the archives: never an address, only what is set.

    `proxy_variables` are the names of the proxy variables that are set; `ca_variables` those
    that name a CA bundle (SSL_CERT_FILE and the like).
    """

    proxy_variables: tuple[str, ...] = ()
    ca_variables: tuple[str, ...] = ()


class StackFacts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is there of the planned stack; read for `doctor` only, absent from other facts.

    None is "not looked at" or "could not be told". `images_missing` are the tags that the engine
    does not have; `state` is that of `zluda-stack status`.
    """

    engine: str
    images_missing: tuple[str, ...] | None = None
    model: str | None = None
    model_ready: bool | None = None
    state: str | None = None
    endpoint_answers: bool | None = None
    endpoint_problem: str | None = None


class DockerFacts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The Docker command line and the engine behind its current context.

    `problem` says in the engine's own words why it did not answer; None when it did.
    `emulated_by` is "podman" where the command docker is podman's, or the engine behind it is.
    The versions of Compose and buildx are None too when the engine did not answer in time.
    `desktop` is Docker Desktop, whose engine is in a virtual machine without this host's
    devices. `remote` is an engine that is reached over the network. `contexts` are the names of
    all contexts. `runtimes` are the engine's OCI runtimes; `free_bytes` what is left where it
    stores images, None when that folder is not on this host or cannot be looked at.
    """

    client_version: str | None = None
    engine_version: str | None = None
    compose_version: str | None = None
    context: str | None = None
    operating_system: str | None = None
    problem: str | None = None
    buildx_version: str | None = None
    emulated_by: str | None = None
    rootless: bool | None = None
    desktop: bool | None = None
    remote: bool | None = None
    contexts: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    default_runtime: str | None = None
    cdi_enabled: bool | None = None
    data_root: str | None = None
    free_bytes: int | None = None
    socket: DeviceNode | None = None


class EmbeddedFacts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whether the packages of the extra `embedded` can be imported by this interpreter."""

    server_version: str | None = None
    missing: tuple[str, ...] = ()


class RunningStack(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A stack of ours that holds a port now.

    `free_bytes` is what each of its cards had free before it was started, by PCI address, and
    `page_port` where its web page is, when it has one.
    """

    name: str
    port: int
    page_port: int | None = None
    free_bytes: dict[str, int] = {}


class LocalModelFacts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The GGUF file that the settings name, as its own header describes it.

    They name it by its path, or by what the model store calls it. `size` is in bytes, of all
    parts. `problem` says why it cannot be used (missing, not GGUF, damaged); the rest is then
    None. `shape` is what its memory follows from, None when that is not understood.
    """

    path: str
    size: int | None = None
    name: str | None = None
    architecture: str | None = None
    context_length: int | None = None
    chat_template: bool | None = None
    shape: Architecture | None = None
    problem: str | None = None


class HostFacts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything a plan may depend on.

    `environment` holds only the GPU variables that the user has set (never others),
    `listening_ports` the TCP ports in use on any local address, and `kernel_options` those
    options of the kernel's command line that concern graphics or the IOMMU. `hidden_nodes`
    counts the KFD nodes that the device cgroup hides. `models_ready` are the models that this
    user's store has whole. `container` names the kind of container this runs in (docker, podman,
    kubernetes, lxc), None for none.
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
    memory_available_bytes: int | None = None
    models_free_bytes: int | None = None
    kernel_options: tuple[str, ...] = ()
    distribution: str | None = None
    container: str | None = None
    hidden_nodes: int = 0
    models_ready: tuple[str, ...] = ()
    dxg: DeviceNode | None = None
    pci_displays: tuple[PciDisplay, ...] = ()
    driver: DriverFacts = DriverFacts()
    user: UserFacts = UserFacts()
    security: SecurityFacts = SecurityFacts()
    podman: PodmanFacts | None = None
    cdi: tuple[CdiSpec, ...] = ()
    network: NetworkFacts = NetworkFacts()
    rocm_version: str | None = None
    stack: StackFacts | None = None
