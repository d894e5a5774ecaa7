"""A plan whose servers run under rocprofv3, which counts the kernels that the cards compute.

An image of its own has it, over the very image of the server (images/rocprof), so that a stack
without it holds nothing of it. The webui profile is left out: PyTorch's wheels bring a ROCm of
their own.
"""

from __future__ import annotations

from msgspec import structs

from zluda_stack.catalog.schema import Variant
from zluda_stack.errors import PlanRefused
from zluda_stack.plan.profiles import traits
from zluda_stack.plan.types import ImagePlan, Plan, Service
from zluda_stack.settings import Profile

# Where the image has rocprofv3 write, and the volume that keeps it once the server has ended.
FOLDER = "/rocprof"
VOLUME = "rocprof"
NAME = "rocprof"
# The build context that its Dockerfile is built on.
_SERVER = "server"
# It writes a line for each launch of a kernel when the server ends: millions after a long load.
_STOP_S = 600


def with_rocprof(plan: Plan) -> Plan:
    """`plan` with each server on a card under rocprofv3. Raises PlanRefused where it cannot be."""
    if not plan.gpus:
        raise PlanRefused(
            "rocprofv3 counts what a card computes, and this stack computes on the CPU",
            "Leave --rocprof out, or choose a card.",
        )
    server = next(image for image in plan.images if image.name == traits(plan.profile).image)
    require_countable(plan.profile, server.variant)
    counting = _counting(server)
    services = (
        _under_rocprof(one, counting) if one.build == server.name else one for one in plan.services
    )
    made = structs.replace(plan, images=(*plan.images, counting), services=tuple(services))
    volumes = (*plan.volumes, *map(volume_of, servers(made)))
    return structs.replace(made, volumes=volumes)


def require_countable(profile: Profile, variant: Variant) -> None:
    """Raises PlanRefused where rocprofv3 counts nothing of a profile, whatever the machine is."""
    if traits(profile).has_page:
        raise PlanRefused(
            f"the server of the {profile} profile is not run under rocprofv3",
            "Choose translated or native.",
        )
    if not variant.packages["profiler"]:
        raise PlanRefused(
            f"the packages of {variant.name} hold no rocprofv3",
            "AMD's own do: --variant rocm-ubuntu-22.04",
        )


def servers(plan: Plan) -> tuple[str, ...]:
    """The names of the services of `plan` that run under rocprofv3."""
    return tuple(service.name for service in plan.services if service.build == NAME)


def volume_of(service: str) -> str:
    """The volume that what is counted of `service` is in."""
    return f"{VOLUME}-{service}"


def _counting(server: ImagePlan) -> ImagePlan:
    """The image over that of `server`."""
    return ImagePlan(
        name=NAME,
        tag=f"{server.tag}-rocprof",
        variant=server.variant,
        development=server.development,
        runtime=server.runtime,
        components={},
        contexts={_SERVER: f"docker-image://{server.tag}"},
    )


def _under_rocprof(service: Service, image: ImagePlan) -> Service:
    return structs.replace(
        service,
        image=image.tag,
        build=image.name,
        volumes=(*service.volumes, f"{volume_of(service.name)}:{FOLDER}"),
        stop_grace=_STOP_S,
    )
