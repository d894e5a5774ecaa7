"""The Plan: every decision, frozen, as plain data that renderers and engines read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from zluda_stack.catalog.schema import (
    BaseImage,
    Component,
    Evidence,
    GateBudgets,
    Model,
    Variant,
)
from zluda_stack.settings import Profile

EngineName = Literal["docker", "embedded"]


class Notice(Struct, frozen=True, kw_only=True):
    """Something the user must know: `code` is stable, `hint` is the next step."""

    code: str
    message: str
    hint: str


class Decision(Struct, frozen=True, kw_only=True):
    """One thing that was decided, its value, and why."""

    what: str
    value: str
    because: str


class SkippedGpu(Struct, frozen=True, kw_only=True):
    """A GPU that is there and was not chosen; `index` is its number in `zluda-stack gpus`.

    One that the compute driver does not offer has none.
    """

    gpu: str
    reason: str
    index: int | None = None


class GpuDevice(Struct, frozen=True, kw_only=True):
    """A GPU that computes. Number, paths and gids are None when this host does not have the card.

    `index` is its number in `zluda-stack gpus`; `memory_bytes` what models can use, which for
    integrated graphics is a part of the machine's memory, and `free_bytes` what of it was free
    before this stack was started. `kernel_target` is the gfx target whose rocBLAS kernels are
    used, None for its own.
    """

    target: str
    name: str | None
    evidence: Evidence
    index: int | None = None
    integrated: bool = False
    pci: str | None = None
    render_node: str | None = None
    render_gid: int | None = None
    kfd_gid: int | None = None
    memory_bytes: int | None = None
    free_bytes: int | None = None
    hsa_override: str | None = None
    kernel_target: str | None = None


class ModelPlan(Struct, frozen=True, kw_only=True):
    """The model that is served: one of the catalogue, or a file of the user's (`path`).

    `context` is the context length in tokens that the server is started with;
    `trained_context` what the model was trained for (None when a local file was not read).
    `batch` is how many tokens of a prompt are computed at a time (llama.cpp's n_ubatch), and
    `gpu_layers` how many layers are on the card, the output being one; None for all. The experts
    of the first `cpu_moe` layers are in the machine's memory (its n_cpu_moe). With `split` one
    server spreads the model over all cards, each of which has so many layers.
    """

    name: str
    catalogued: Model | None
    path: str | None
    context: int
    trained_context: int | None
    batch: int = 512
    gpu_layers: int | None = None
    cpu_moe: int = 0
    split: tuple[int, ...] = ()


class Tls(Struct, frozen=True, kw_only=True):
    """The PEM files that an endpoint speaks HTTPS with: absolute paths on this machine."""

    certificate: str
    key: str


class EndpointPlan(Struct, frozen=True, kw_only=True):
    """Where clients connect, and how it is served.

    `host` is what a client on this machine uses for `bind`, and `name` what all clients use,
    when the user says so. `origins` are the web pages that may call it; `queue` and `slots` are
    None for the gateway's own way; `capture` writes prompts and answers to disk.
    """

    bind: str
    port: int
    host: str
    name: str | None = None
    tls: Tls | None = None
    origins: tuple[str, ...] = ()
    queue: int | None = None
    slots: int | None = None
    capture: bool = False

    @property
    def server_name(self) -> str:
        """What clients call it, and what its certificate must be for."""
        return self.name or self.host

    @property
    def url(self) -> str:
        """The base URL without a path, as clients use it."""
        return self._at(self.server_name)

    @property
    def local_url(self) -> str:
        """The same, by the address that this machine reaches it at."""
        return self._at(self.host)

    def listens_as(self, other: EndpointPlan) -> bool:
        """True when both want the same address and port."""
        return (self.bind, self.port) == (other.bind, other.port)

    def _at(self, host: str) -> str:
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"


class PagePlan(Struct, frozen=True, kw_only=True):
    """Where the web page of a profile is: published on `bind`, opened on this machine at `host`.

    `login` is the file with who may open it, as user:password; None: everyone who can reach it.
    """

    bind: str
    port: int
    host: str
    login: str | None = None

    @property
    def url(self) -> str:
        """What a browser on this machine opens."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


class ImagePlan(Struct, frozen=True, kw_only=True):
    """One image to build: images/<name>/Dockerfile.j2 with these values.

    Its stages are built on `development` and `runtime`, the two base images of `variant`;
    `components` are the pinned sources, and `methods` names, for a part that can be come by in
    several ways, the folder of images/ that is taken in its place. `budgets` are what its gates let
    pass, None for what its image.yml says. `arguments` are the build ARGs of this plan, and
    `contexts` the folders that stand in for stages; a value that only the host knows is a
    ${VARIABLE} of `Plan.host_environment` in `compose_arguments` and `compose_tag` (None: `tag`),
    which are for every host.
    """

    name: str
    tag: str
    variant: Variant
    development: BaseImage
    runtime: BaseImage
    components: dict[str, Component]
    methods: dict[str, str] = {}
    arguments: dict[str, str] = {}
    compose_arguments: dict[str, str] = {}
    contexts: dict[str, str] = {}
    compose_tag: str | None = None
    budgets: GateBudgets | None = None


class HealthCheck(Struct, frozen=True, kw_only=True):
    """A container health check; times are in seconds.

    Until the first success, at most for `start_period`, it runs every `start_interval`.
    """

    test: tuple[str, ...]
    interval: int
    timeout: int
    start_period: int
    retries: int
    start_interval: int = 2


class Service(Struct, frozen=True, kw_only=True):
    """One container. What only the host knows stands as a ${VARIABLE} of `Plan.host_environment`.

    `build` is the name of the planned image that it runs, None for one that is only pulled.
    `publish` is (address, host port, container port); `depends_on` maps a service to the
    condition `service_healthy` or `service_completed_successfully`; `runtime` is an OCI runtime
    of the engine, None for its default. `user` is None for that of the image; with `init` signals
    end a command that does not mind them.
    """

    name: str
    image: str
    build: str | None = None
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    devices: tuple[str, ...] = ()
    group_add: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    tmpfs: tuple[str, ...] = ()
    publish: tuple[tuple[str, str, int], ...] = ()
    secrets: tuple[str, ...] = ()
    depends_on: dict[str, str] = {}
    health: HealthCheck | None = None
    one_shot: bool = False
    stop_grace: int = 10
    runtime: str | None = None
    user: str | None = None
    init: bool = False


class Plan(Struct, frozen=True, kw_only=True):
    """What will happen. The same facts, settings and catalogue give a byte-identical plan.

    `gpus` are the cards that compute, all of one gfx target, each with a replica of the model
    server, or with one for all when the model is split; none means the CPU.
    `model` is what the first card serves, and `others` what each further one does, where they
    serve different models. `unmet` is what this machine lacks to carry the plan out; a plan with
    unmet needs can be rendered, and built elsewhere, but not run here. `services`, `images` and
    `host_environment` are for containers; the embedded engine needs none of them. `registry` is
    asked for images before they are built. With `offline` nothing is fetched or built. `profile` is
    what computes on the cards, and `combination` the versions that its images are made of. `page`
    is the profile's own web page, None for a profile without one.
    """

    schema: int = 1
    name: str
    engine: EngineName
    headline: str
    gpus: tuple[GpuDevice, ...]
    skipped: tuple[SkippedGpu, ...]
    model: ModelPlan
    others: tuple[ModelPlan, ...] = ()
    endpoint: EndpointPlan
    client: str | None
    threads: int | None
    images: tuple[ImagePlan, ...] = ()
    services: tuple[Service, ...] = ()
    volumes: tuple[str, ...] = ()
    host_environment: dict[str, str] = {}
    decisions: tuple[Decision, ...] = ()
    warnings: tuple[Notice, ...] = ()
    unmet: tuple[Notice, ...] = ()
    registry: str | None = None
    offline: bool = False
    profile: Profile = "translated"
    combination: str | None = None
    page: PagePlan | None = None

    @property
    def gpu(self) -> GpuDevice | None:
        """The first card, whose gfx target is that of them all; None for the CPU."""
        return self.gpus[0] if self.gpus else None

    @property
    def models(self) -> tuple[ModelPlan, ...]:
        """What is served: one for each card in their order, or a single one."""
        return (self.model, *self.others)

    @property
    def served(self) -> tuple[str, ...]:
        """The names of the models, each once, that of the first card first."""
        return tuple(dict.fromkeys(model.name for model in self.models))

    @property
    def catalogued(self) -> tuple[Model, ...]:
        """Those of the models that the catalogue has, each once."""
        return catalogued(self.models)


def catalogued(models: Iterable[ModelPlan]) -> tuple[Model, ...]:
    """Those of `models` that the catalogue has, each once."""
    known = (model.catalogued for model in models)
    return tuple({one.name: one for one in known if one is not None}.values())


def to_json(plan: Plan) -> bytes:
    """The plan as JSON with sorted keys, indented, with a final newline."""
    return msgspec.json.format(msgspec.json.encode(plan, order="sorted"), indent=2) + b"\n"


def from_json(data: bytes) -> Plan:
    """The plan that `to_json` wrote. Raises msgspec.ValidationError for anything else."""
    return msgspec.json.decode(data, type=Plan)
