"""The settings a user can give, and where each value came from.

This module holds the types. Reading them from flags, environment and files is
`zluda_stack.config`; deciding what they mean is `zluda_stack.plan.resolve`.
"""

# Without `from __future__ import annotations`: each annotation would be a text, which msgspec would
# have to evaluate at each start.

from typing import Annotated, Literal

from msgspec import Meta, Struct

EngineWish = Literal["auto", "docker", "embedded"]
ClientWish = Literal["none", "claude", "openai", "vscode"]
PassthroughWish = Literal["auto", "devices", "cdi", "runtime"]
Profile = Literal["translated", "native", "webui"]
ZludaMethod = Literal["source", "release", "path"]
CudaMethod = Literal["wheels", "apt"]

Name = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$",
        description="Name of the stack; several run side by side under different names.",
    ),
]
Port = Annotated[int, Meta(ge=1, le=65535)]
# What only the environment and the files give: it is set once, and `--help` is long enough.
NO_FLAG = {"flag": False}
# A number that may have k or M behind it, in steps of 1024.
AMOUNT = {"amount": True}


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the user wishes, fully typed; None means "you choose"."""

    name: Name = "default"
    engine: Annotated[EngineWish, Meta(description="How the stack runs.")] = "auto"
    profile: Annotated[
        Profile,
        Meta(
            description="What computes on a card: CUDA through ZLUDA, a native ROCm build, or "
            "text-generation-webui."
        ),
    ] = "translated"
    gpu: Annotated[
        str,
        Meta(
            description="auto, none, all, or cards by target (gfx1100), product, number of "
            "`zluda-stack gpus`, PCI address or unique id, separated by commas.",
            min_length=1,
        ),
    ] = "auto"
    vram: Annotated[
        Annotated[int, Meta(ge=2**20, le=2**50)] | None,
        Meta(description="Memory of a card that is not here, such as 24G.", extra=AMOUNT),
    ] = None
    passthrough: Annotated[
        PassthroughWish,
        Meta(
            description="How cards enter containers: their device nodes (auto), or AMD's CDI "
            "or runtime."
        ),
    ] = "auto"
    model: Annotated[
        str | None,
        Meta(
            description="A model of the catalogue, or the path of a GGUF file; for several cards "
            "also one name for each, with commas."
        ),
    ] = None
    context: Annotated[
        Annotated[int, Meta(ge=256, le=16777216)] | None,
        Meta(description="Context length in tokens, such as 32k.", extra=AMOUNT),
    ] = None
    bind: Annotated[str, Meta(description="Address that ports are published on.")] = "127.0.0.1"
    port: Annotated[Port | None, Meta(description="Port of the endpoint.")] = None
    webui_port: Annotated[
        Port | None, Meta(description="Port of the web page, for the profile webui.")
    ] = None
    webui_login: Annotated[
        str | None,
        Meta(description="File with user:password for the web page, for the profile webui."),
    ] = None
    hostname: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9.:-]{1,253}$")] | None,
        Meta(description="Name or address by which clients reach the endpoint."),
    ] = None
    tls_cert: Annotated[
        str | None,
        Meta(description="Certificate chain, as a PEM file: the endpoint then speaks HTTPS."),
    ] = None
    tls_key: Annotated[
        str | None, Meta(description="Private key of the certificate, as a PEM file.")
    ] = None
    capture_prompts: Annotated[
        bool, Meta(description="Write every prompt and answer to disk, to find a fault.")
    ] = False
    allow_origins: Annotated[
        str | None,
        Meta(
            description="Web pages that may call the endpoint: https://HOST, with commas; or *.",
            extra=NO_FLAG,
        ),
    ] = None
    queue: Annotated[
        Annotated[int, Meta(ge=1, le=100000)] | None,
        Meta(description="Requests that may wait for the model.", extra=NO_FLAG),
    ] = None
    slots: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None,
        Meta(
            description="Requests that the endpoint gives a model server at once; it asks without.",
            extra=NO_FLAG,
        ),
    ] = None
    client: Annotated[ClientWish, Meta(description="Client the stack must be able to serve.")] = (
        "none"
    )
    variant: Annotated[
        str, Meta(description="auto, or a base variant of the catalogue.", min_length=1)
    ] = "auto"
    base: Annotated[
        str | None, Meta(description="Development image of the variant, as NAME:TAG.")
    ] = None
    combination: Annotated[
        str,
        Meta(
            description="auto, or other versions of ZLUDA and llama.cpp: a combination that "
            "`zluda-stack explain` lists.",
            min_length=1,
        ),
    ] = "auto"
    zluda: Annotated[ZludaMethod, Meta(description="Where ZLUDA comes from.")] = "source"
    zluda_path: Annotated[
        str | None, Meta(description="With zluda=path: the folder that holds libcuda.so.")
    ] = None
    cuda_toolkit: Annotated[
        CudaMethod, Meta(description="Where NVIDIA's toolkit comes from, to build with.")
    ] = "wheels"
    hsa_override: Annotated[
        str | None, Meta(description="HSA_OVERRIDE_GFX_VERSION for the GPU service, as 11.0.0.")
    ] = None
    accept_cuda_eula: Annotated[
        bool, Meta(description="You have read and accept NVIDIA's CUDA toolkit licence.")
    ] = False
    registry: Annotated[
        Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*$")]
        | None,
        Meta(description="Where images are that were built before, as HOST[:PORT]/PATH."),
    ] = None
    offline: Annotated[
        bool, Meta(description="Touch no network; refuse what would have to be fetched.")
    ] = False
    threads: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None,
        Meta(description="CPU threads of the server."),
    ] = None


class Origin(Struct, frozen=True, kw_only=True):
    """Where a value came from: `kind` is the layer, `where` the flag, variable or file and line."""

    kind: Literal["flag", "environment", "project file", "user file", "default"]
    where: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.where}".strip()


DEFAULT = Origin(kind="default")


class Configured(Struct, frozen=True, kw_only=True):
    """Settings together with the origin of every value, by the setting's name."""

    settings: Settings = Settings()
    origins: dict[str, Origin] = {}

    def origin(self, key: str) -> Origin:
        """The origin of the setting `key`; DEFAULT when no layer gave it."""
        return self.origins.get(key, DEFAULT)

    def given(self, key: str) -> bool:
        """True when the user gave `key` in any layer."""
        return key in self.origins
