"""What one CUDA program needs: the container of a stack's model server, with it in its place."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Literal

from msgspec import Struct, structs

from zluda_stack.catalog.schema import Catalog
from zluda_stack.errors import DeviceMissing, HostProblem, PlanRefused, UsageError
from zluda_stack.host.facts import HostFacts
from zluda_stack.plan import containers
from zluda_stack.plan.engine_needs import engine_needs
from zluda_stack.plan.gpu import Choice, choose_gpu, describe
from zluda_stack.plan.gpu_reach import for_no_server, without_cpu_way
from zluda_stack.plan.images import gpu_images
from zluda_stack.plan.model import model_anywhere
from zluda_stack.plan.passthrough import choose_passthrough
from zluda_stack.plan.profiles import traits
from zluda_stack.plan.types import EndpointPlan, Notice, Plan, Service
from zluda_stack.plan.variables import fill
from zluda_stack.plan.variant import choose_bases
from zluda_stack.settings import Configured, Profile, Settings

Front = Literal["library-path", "audit"]

ZLUDA = "/opt/zluda"
CACHE = "/cache"
TRACE = "/trace"
_HOME = "/home/user"
_KEEP_GROUPS = ("keep-groups",)
# A mount over one of these would hide the container's own programs, libraries or devices.
_OF_THE_SYSTEM = tuple(
    map(
        PurePosixPath,
        (
            *("/bin", "/boot", "/cache", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/opt/llama"),
            *("/opt/rocm", "/opt/selftest", "/opt/zluda", "/opt/zluda-stack", "/proc", "/run"),
            *("/sbin", "/sys", "/trace", "/usr"),
        ),
    )
)


class Mount(Struct, frozen=True, kw_only=True):
    """A folder or file of this machine in a container; both paths are absolute."""

    source: str
    target: str
    read_only: bool = False


class Wish(Struct, frozen=True, kw_only=True):
    """What the user wants to run, and as whom.

    `folder` is mounted at its own path and is the current folder of the program; None for none.
    `image` stands in for the planned one, `zluda` for the ZLUDA in it, a folder of this machine.
    `cache` keeps what ZLUDA compiles, `trace` takes the logs of ZLUDA's tracing shims: both are
    folders of this machine that `uid` may write.
    """

    program: tuple[str, ...]
    uid: int
    gid: int
    home: str
    folder: str | None
    cache: str
    mounts: tuple[Mount, ...] = ()
    environment: dict[str, str] = {}
    image: str | None = None
    front: Front = "library-path"
    zluda: str | None = None
    trace: str | None = None
    terminal: bool = False


class RunPlan(Struct, frozen=True, kw_only=True):
    """One container, to be started in the foreground and removed at its end.

    `build` is what `zluda-stack build` makes the planned image by, None for another; `user` is None
    for that of the image, `entrypoint` None for its own. `keep_id` is for Podman without root: the
    user's ids stay the same.
    """

    image: str
    command: tuple[str, ...]
    target: str | None = None
    build: str | None = None
    entrypoint: str | None = None
    user: str | None = None
    keep_id: bool = False
    groups: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    runtime: str | None = None
    mounts: tuple[Mount, ...] = ()
    tmpfs: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    folder: str | None = None
    terminal: bool = False
    warnings: tuple[Notice, ...] = ()


def gpu_plan(
    facts: HostFacts, configured: Configured, catalog: Catalog, profile: Profile = "translated"
) -> Plan:
    """The plan of a stack on the chosen cards, as far as it is not about a model or an endpoint.

    So it does not matter whether a model would fit beside what is on the card, or which ports are
    free. What this machine lacks to run it is in `Plan.unmet`. No hint speaks of the model server
    on the CPU, which is no way to run anything else. Raises PlanRefused and DeviceMissing as
    `resolve` does, PlanRefused for `gpu=none`, and HostProblem when no card can be used.
    """
    asked = configured.settings
    settings = structs.replace(asked, engine="docker", profile=profile, model=None, context=None)
    if asked.profile != profile:  # what was chosen for another profile counts for that one
        settings = structs.replace(settings, combination="auto")
    configured = structs.replace(configured, settings=settings)
    choice = _chosen(facts, configured, catalog)
    if choice.gpu is None:
        raise _without_gpu(settings, choice)
    entry = choose_passthrough(facts, configured, choice.gpus)
    model = model_anywhere(facts, configured, catalog)
    endpoint = EndpointPlan(bind=settings.bind, port=catalog.defaults.port, host=settings.bind)
    images = gpu_images(
        catalog, settings, choose_bases(catalog, settings.variant, settings.base), choice.gpu
    )
    return Plan(
        name=settings.name,
        engine="docker",
        headline=f"GPU {describe(choice.gpus)} {traits(profile).how} in Docker: {choice.because}.",
        gpus=choice.gpus,
        skipped=choice.skipped,
        model=model,
        endpoint=endpoint,
        client=None,
        threads=None,
        images=images,
        services=containers.gpu_services(catalog, images, (model,), choice.gpus, entry),
        host_environment=containers.host_environment(
            choice.gpus, entry, (model,), endpoint, terms_accepted=settings.accept_cuda_eula
        ),
        warnings=for_no_server(choice.warnings + entry.warnings),
        unmet=for_no_server(
            choice.unmet + entry.unmet + engine_needs(facts, "docker", catalog.host)
        ),
    )


def _chosen(facts: HostFacts, configured: Configured, catalog: Catalog) -> Choice:
    try:
        return choose_gpu(facts, configured, catalog)
    except DeviceMissing as missing:
        doctor = "`zluda-stack doctor` says what keeps the card out of reach."
        raise DeviceMissing(
            missing.message, f"{without_cpu_way(missing.hint)} {doctor}"
        ) from missing
    except PlanRefused as refused:
        raise PlanRefused(refused.message, without_cpu_way(refused.hint)) from refused


def run_plan(plan: Plan, wish: Wish) -> RunPlan:
    """The container that runs `wish` on the cards of `plan`, which this machine has.

    Raises UsageError for a current folder that must not be mounted, and for a variable that
    the plan decides.
    """
    refuse_decided(wish.environment)
    if wish.folder is not None:
        require_mountable(wish.folder, wish.home)
    card = as_user(on_cards(plan), wish.uid, wish.gid)
    return structs.replace(
        card,
        image=wish.image or card.image,
        build=None if wish.image else card.build,
        command=wish.program,
        mounts=_mounts(wish),
        environment=card.environment | _environment(wish) | wish.environment,
        folder=wish.folder,
        terminal=wish.terminal,
    )


def as_user(card: RunPlan, uid: int, gid: int) -> RunPlan:
    """`card` for that user, who keeps the groups of the card and has a home folder in memory.

    USER stands in for the entry that /etc/passwd of the image has not.
    """
    podman = card.groups == _KEEP_GROUPS
    groups = card.groups if podman else tuple(group for group in card.groups if group != str(gid))
    return structs.replace(
        card,
        user=f"{uid}:{gid}",
        keep_id=podman,
        groups=groups,
        tmpfs=(f"{_HOME}:exec,mode=0700,uid={uid},gid={gid}",),
        environment=card.environment | {"HOME": _HOME, "USER": "user"},
    )


def on_cards(plan: Plan) -> RunPlan:
    """The image and the cards of `plan`, with nothing to run yet."""
    servers = [service for service in plan.services if service.devices or service.runtime]
    values = plan.host_environment

    def filled(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for text in (fill(text, values) for text in texts) if text))

    return RunPlan(
        image=fill(servers[0].image, values),
        command=(),
        target=plan.gpu.target if plan.gpu else None,
        build=servers[0].build,
        groups=_groups(plan, servers[0]),
        devices=filled(device for server in servers for device in server.devices),
        runtime=servers[0].runtime,
        environment=_card_environment(servers, values),
        warnings=plan.warnings,
    )


def require_mountable(folder: str, home: str) -> None:
    """Return when `folder` may be mounted at its own path; else raise UsageError.

    Not the whole machine, not the whole home folder with its keys and passwords, and nothing
    that would hide what the container needs.
    """
    refuse_home(folder, home)
    if hides_the_system(folder):
        raise UsageError(
            f"the current folder {folder} would hide the container's own",
            "Change to another folder, or add --no-cwd.",
        )


def refuse_home(folder: str, home: str) -> None:
    """Raises UsageError for the whole machine and for the whole home folder."""
    if PurePosixPath(home).is_relative_to(PurePosixPath(folder)):
        what = "the whole machine" if folder == "/" else f"{folder} and all that is in your home"
        raise UsageError(
            f"the current folder would give {what} to the program",
            "Change to the program's own folder, or add --no-cwd.",
        )


def hides_the_system(folder: str) -> bool:
    """True when `folder`, mounted at its own path, hides what a container needs."""
    path = PurePosixPath(folder)
    return any(
        path.is_relative_to(system) or system.is_relative_to(path) for system in _OF_THE_SYSTEM
    )


def _without_gpu(asked: Settings, choice: Choice) -> PlanRefused | HostProblem:
    if asked.gpu == "none":
        return PlanRefused(
            "gpu=none was asked for, and ZLUDA runs on a GPU only",
            "Leave it out, or name a card: `zluda-stack gpus` lists them.",
        )
    if not traits(asked.profile).translates:
        return HostProblem(
            choice.because, "`zluda-stack doctor` checks the cards and their driver."
        )
    return HostProblem(
        f"CUDA programs run on a GPU only: {choice.because}",
        "`zluda-stack doctor` checks the cards and their driver. `zluda-stack check` says, without "
        "a GPU, whether a program would run.",
    )


def refuse_decided(environment: dict[str, str]) -> None:
    """Raises UsageError for a variable that the plan decides."""
    if "HSA_OVERRIDE_GFX_VERSION" in environment:
        raise UsageError(
            "HSA_OVERRIDE_GFX_VERSION is decided for the card and cannot be given by --env",
            "Give it as --hsa-override; most cards need none.",
        )


def _mounts(wish: Wish) -> tuple[Mount, ...]:
    own = [Mount(source=wish.cache, target=CACHE)]
    if wish.zluda is not None:
        own.append(Mount(source=wish.zluda, target=ZLUDA, read_only=True))
    if wish.trace is not None:
        own.append(Mount(source=wish.trace, target=TRACE))
    if wish.folder is not None:
        own.append(Mount(source=wish.folder, target=wish.folder))
    given = {mount.target for mount in wish.mounts}
    return (*(mount for mount in own if mount.target not in given), *wish.mounts)


def _environment(wish: Wish) -> dict[str, str]:
    """What every program gets; `on-gpu` reads the ON_GPU_ variables."""
    told = {"XDG_CACHE_HOME": CACHE}
    if wish.front == "audit":
        told["ON_GPU_FRONT"] = wish.front
    if wish.trace is not None:
        told["ON_GPU_TRACE"] = TRACE
    return told


def _groups(plan: Plan, server: Service) -> tuple[str, ...]:
    """The groups that open the device nodes; for Podman the word for all groups of the user."""
    if server.group_add == _KEEP_GROUPS:
        return _KEEP_GROUPS
    gids = (gid for gpu in plan.gpus for gid in (gpu.kfd_gid, gpu.render_gid))
    return tuple(dict.fromkeys(str(gid) for gid in gids if gid is not None))


def _card_environment(servers: list[Service], values: dict[str, str]) -> dict[str, str]:
    """What the chosen cards need: the override, and what AMD's runtime calls them."""
    override = fill(servers[0].environment.get("HSA_OVERRIDE", ""), values)
    names = [server.environment.get("AMD_VISIBLE_DEVICES", "") for server in servers]
    told = {
        # The entrypoint `on-gpu` reads the first; an adapted image has no such entrypoint.
        "HSA_OVERRIDE": override,
        "HSA_OVERRIDE_GFX_VERSION": override,
        "AMD_VISIBLE_DEVICES": ",".join(fill(name, values) for name in names if name),
    }
    return {key: value for key, value in told.items() if value}
