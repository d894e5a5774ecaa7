"""The toolbox: ROCm's compiler and developer tools in a container, on the user's folder.

A card is passed through where there is one that can be used; what only compiles needs none.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, structs

from zluda_stack.catalog.schema import Catalog, Variant
from zluda_stack.errors import HostProblem, PlanRefused
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan.building import DOCKER
from zluda_stack.plan.engine_needs import engine_needs
from zluda_stack.plan.gpu_reach import for_no_server
from zluda_stack.plan.reference import cpu_plan
from zluda_stack.plan.run import (
    Mount,
    RunPlan,
    as_user,
    gpu_plan,
    hides_the_system,
    on_cards,
    refuse_decided,
    refuse_home,
)
from zluda_stack.plan.types import ImagePlan, Notice, Plan, Service
from zluda_stack.plan.variables import optional
from zluda_stack.plan.variant import choose_bases
from zluda_stack.settings import Configured, Settings

NAME = "toolbox"
WITH_CUDA = "toolbox-cuda"
WORK = "/work"
# The code of the notice that there is no card which could get into the toolbox.
NO_CARD = "no-card"
# What the image wrote of its own tools (images/toolbox/list-tools).
TOOLS_FILE = "/opt/zluda-stack/tools"
CLANG = "hipify-clang"
_TOOLKIT = "cuda-toolkit"
# In the place of a card's nodes where there is none: Compose has no devices that may be missing,
# and refuses an entry that stands twice.
_NO_KFD, _NO_CARD = "/dev/null", "/dev/zero"
# Groups of nobody, for the same reason.
_NO_GROUPS = ("10001", "10002")
_ARCHITECTURE = ("--offload-arch", "--amdgpu-target", "--cuda-gpu-arch")


class Tool(Struct, frozen=True, kw_only=True):
    """A tool by its name in the image. `card` is whether it is of use with a card only."""

    title: str
    card: bool = False


TOOLS: dict[str, Tool] = {
    "hipcc": Tool(title="compile HIP"),
    "hipify-perl": Tool(title="convert CUDA sources by their words"),
    CLANG: Tool(title="convert CUDA sources by their syntax"),
    "nvcc": Tool(title="compile CUDA"),
    "rocminfo": Tool(title="what ROCm sees of the cards", card=True),
    "rocm-smi": Tool(title="clocks, memory and temperature", card=True),
    "amd-smi": Tool(title="the same, its successor", card=True),
    "rocprof": Tool(title="profile a program", card=True),
    "rocprofv3": Tool(title="profile a program, its successor", card=True),
    "rocgdb": Tool(title="debug a program, kernels included", card=True),
}
# What needs NVIDIA's toolkit, by the beginnings of commands.
_OF_CUDA = {("nvcc",): "nvcc", ("to-hip", "clang"): CLANG}


class Reach(Struct, frozen=True, kw_only=True):
    """What of the cards gets into the toolbox.

    `card` is None where none does, and `lack` says why, unless none was wanted. `target` is the
    gfx target to compile for: also that of a card which is not here, None where none is known.
    """

    card: RunPlan | None = None
    target: str | None = None
    lack: Notice | None = None


class ToolWish(Struct, frozen=True, kw_only=True):
    """What the user wants to run in the toolbox, and as whom.

    `folder` is mounted and the current folder of the command; None for none.
    """

    command: tuple[str, ...]
    uid: int
    gid: int
    home: str
    folder: str | None = None
    mounts: tuple[Mount, ...] = ()
    environment: dict[str, str] = {}
    terminal: bool = False


def toolbox_image(catalog: Catalog, settings: Settings) -> ImagePlan:
    """The toolbox's image: with NVIDIA's toolkit once its terms are accepted, else without."""
    bases = choose_bases(catalog, settings.variant, settings.base)
    toolkit = bases.variant.cuda_apt if settings.cuda_toolkit == "apt" else _TOOLKIT
    name = WITH_CUDA if settings.accept_cuda_eula else NAME
    image = ImagePlan(
        name=name,
        tag=f"zluda-stack/{name}:{bases.variant.name}",
        variant=bases.variant,
        development=bases.development,
        runtime=bases.runtime,
        components={toolkit: catalog.components[toolkit]},
    )
    if not settings.accept_cuda_eula:
        return image
    return structs.replace(
        image,
        methods={} if toolkit == _TOOLKIT else {_TOOLKIT: toolkit},
        arguments={"ACCEPT_CUDA_EULA": "yes"},
        compose_arguments={"ACCEPT_CUDA_EULA": optional("ZLUDA_STACK_ACCEPT_CUDA_EULA")},
    )


def toolbox_images(catalog: Catalog, settings: Settings) -> tuple[ImagePlan, ...]:
    """The toolbox without NVIDIA's toolkit, and the one with it."""
    return tuple(
        toolbox_image(catalog, structs.replace(settings, accept_cuda_eula=accepted))
        for accepted in (False, True)
    )


def toolbox_plan(facts: HostFacts, configured: Configured, catalog: Catalog) -> Plan:
    """The toolbox as a plan of its own, to build it and to render it: the same for every host.

    What this machine lacks to build it is in `Plan.unmet`. Raises PlanRefused.
    """
    settings = configured.settings
    image = toolbox_image(catalog, settings)
    return structs.replace(
        cpu_plan(catalog, settings),
        name=settings.name,
        headline="ROCm's developer tools, for any card or none.",
        images=(image,),
        services=(_service(image),),
        volumes=(),
        host_environment={},
        decisions=(),
        warnings=(),
        unmet=for_no_server(engine_needs(facts, "docker", catalog.host)),
        registry=settings.registry,
        offline=settings.offline,
    )


def is_toolbox(plan: Plan) -> bool:
    """True for a plan of the toolbox and nothing else."""
    return all(image.name in (NAME, WITH_CUDA) for image in plan.images) and bool(plan.images)


def for_every_host(catalog: Catalog, settings: Settings) -> Plan:
    """Both toolboxes as the plan behind compose/toolbox.yml."""
    images = toolbox_images(catalog, settings)
    base = cpu_plan(catalog, settings)
    return structs.replace(
        base, images=images, services=tuple(map(_service, images)), volumes=(), host_environment={}
    )


def require_pushable(images: Iterable[ImagePlan]) -> None:
    """Raises PlanRefused for an image that may not leave the machine it was built on."""
    if any(image.name == WITH_CUDA for image in images):
        raise PlanRefused(
            "the toolbox holds nvcc, which NVIDIA's terms forbid to pass on",
            "Build it where it is used, or push the one without: --no-accept-cuda-eula",
        )


def reach(facts: HostFacts, configured: Configured, catalog: Catalog) -> Reach:
    """What of the chosen cards gets into the toolbox; any that ROCm itself serves will do.

    Raises PlanRefused for a card that was asked for and that there is not.
    """
    asked = configured.settings.gpu
    if asked == "none":
        return Reach()
    try:
        plan = gpu_plan(facts, configured, catalog, "native")
    except (HostProblem, PlanRefused) as lack:
        if asked != "auto":
            raise
        return Reach(lack=Notice(code=NO_CARD, message=lack.message, hint=lack.hint))
    target = (plan.gpus[0].kernel_target or plan.gpus[0].target) if plan.gpus else None
    of_card = [notice for notice in plan.unmet if notice.code != DOCKER]
    if of_card:
        return Reach(target=target, lack=of_card[0])
    return Reach(card=on_cards(plan), target=target)


def tool_command(
    image: ImagePlan, facts: HostFacts, reached: Reach, wish: ToolWish, tag: str | None = None
) -> RunPlan:
    """The container that runs `wish` in the toolbox; `engines.docker.run.command` has its argv.

    hipcc compiles for the target of `reached`, unless its arguments name one. `tag` is an image in
    the place of the planned one. Raises UsageError for a folder that must not be mounted and for a
    variable that the plan decides, PlanRefused for what the image cannot have, HostProblem when the
    engine is on another machine, where the folder is not.
    """
    refuse_decided(wish.environment)
    if tag is None:
        _refuse_without_toolkit(wish.command, image)
    place = None if wish.folder is None else _place(wish.folder, wish.home)
    own = () if wish.folder is None or place is None else (Mount(source=wish.folder, target=place),)
    mounts = _distinct(own, wish.mounts)
    if mounts and facts.docker.remote:
        raise _elsewhere(facts)
    card = as_user(reached.card or RunPlan(image="", command=()), wish.uid, wish.gid)
    if facts.docker.rootless:
        card = _in_namespace(card, facts)
    return structs.replace(
        card,
        image=tag or image.tag,
        build=_built_by(image) if tag is None else None,
        target=None,
        command=_for_target(wish.command, reached.target),
        mounts=mounts,
        environment=card.environment | wish.environment,
        folder=place,
        terminal=wish.terminal,
        warnings=(),
    )


def without_clang(image: str, variant: Variant, catalog: Catalog) -> PlanRefused:
    """Why `image` has no hipify-clang, and what to do.

    `variant` is what the toolbox is planned on, also where another image was named.
    """
    having = [one.name for one in catalog.variants.values() if CLANG in one.packages[NAME]]
    why = f": the variant {variant.name} ({variant.title}) packages none"
    other = (
        f"`zluda-stack build --variant {having[0]} --accept-cuda-eula {NAME}`, and --variant here"
    )
    return PlanRefused(
        f"{image} has no {CLANG}{'' if variant.name in having else why}",
        f"Leave --clang out: hipify-perl is in every toolbox. Or build one with it: {other}.",
    )


def needs_card(command: tuple[str, ...]) -> bool:
    """True for a tool that is of use with a card only."""
    tool = TOOLS.get(command[0])
    return tool is not None and tool.card


def misses_target(command: tuple[str, ...], reached: Reach) -> bool:
    """True when hipcc is left to a target of its own choice, which hardly is the user's card."""
    if command[0] != "hipcc" or reached.target is not None or _names_target(command):
        return False
    return any(not argument.startswith("-") for argument in command[1:])


def _service(image: ImagePlan) -> Service:
    """`docker compose run` in the current folder, with the card of compose/.env if there is one."""
    root, node = optional("HOST_ROOT"), optional("HOST_RENDER_NODE", _NO_CARD)
    kfd = optional("HOST_KFD", _NO_KFD)
    return Service(
        name=image.name,
        image=image.tag,
        build=image.name,
        user=f"{optional('ZLUDA_STACK_UID', '1000')}:{optional('ZLUDA_STACK_GID', '1000')}",
        environment={
            "HOME": "/tmp",  # noqa: S108 -- a path in the container
            "HSA_OVERRIDE": optional("ZLUDA_STACK_HSA_OVERRIDE"),
        },
        devices=(f"{root}{kfd}:{kfd}", f"{root}{node}:{node}"),
        group_add=(
            optional("HOST_KFD_GID", _NO_GROUPS[0]),
            optional("HOST_RENDER_GID", _NO_GROUPS[1]),
        ),
        volumes=(f"{optional('PWD', '.')}:{WORK}",),
        tmpfs=("/tmp:exec",),  # noqa: S108 -- a path in the container
        one_shot=True,
        init=True,
    )


def _refuse_without_toolkit(command: tuple[str, ...], image: ImagePlan) -> None:
    tool = _OF_CUDA.get(command[:1]) or _OF_CUDA.get(command[:2])
    if tool is not None and image.name != WITH_CUDA:
        (toolkit,) = image.components.values()
        raise PlanRefused(
            f"{tool} needs NVIDIA's CUDA toolkit, whose terms were not accepted",
            f"Read them ({toolkit.terms}), then give --accept-cuda-eula to `zluda-stack toolbox` "
            "and to `zluda-stack build toolbox`.",
        )


def _built_by(image: ImagePlan) -> str:
    return NAME if image.name == NAME else f"--accept-cuda-eula {NAME}"


def _place(folder: str, home: str) -> str:
    """Where `folder` is in the container: at its own path, unless that would hide the tools."""
    refuse_home(folder, home)
    return WORK if hides_the_system(folder) else folder


def _distinct(own: tuple[Mount, ...], given: tuple[Mount, ...]) -> tuple[Mount, ...]:
    targets = {mount.target for mount in given}
    return (*(mount for mount in own if mount.target not in targets), *given)


def _elsewhere(facts: HostFacts) -> HostProblem:
    return HostProblem(
        f"the engine of the Docker context {facts.docker.context} is on another machine, and the "
        "current folder is on this one",
        "Use the engine of this machine: docker context use default",
    )


def _in_namespace(card: RunPlan, facts: HostFacts) -> RunPlan:
    """`card` for an engine without root, in whose containers root is the user who runs it."""
    if facts.docker.emulated_by == "podman":
        return structs.replace(card, keep_id=True)
    return structs.replace(as_user(card, 0, 0), groups=card.groups)


def _for_target(command: tuple[str, ...], target: str | None) -> tuple[str, ...]:
    if command[0] != "hipcc" or target is None:
        return command
    if _names_target(command):
        return command
    return (command[0], f"--offload-arch={target}", *command[1:])


def _names_target(command: tuple[str, ...]) -> bool:
    return any(argument.startswith(_ARCHITECTURE) for argument in command)
