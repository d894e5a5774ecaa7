"""The self-test as a plan of its own: the same image and cards as the stack's, and no server."""

from __future__ import annotations

from msgspec import structs

from zluda_stack.plan.types import ImagePlan, Plan, Service

_PROGRAM = "/opt/selftest/selftest"
# The compose file, by the image that holds the programs: CUDA's through ZLUDA, or HIP's.
_COMPOSE = {"inference": "compose/selftest.yml", "native": "compose/native-selftest.yml"}
_CACHE = "/cache"


def selftest_path(plan: Plan) -> str | None:
    """Where the compose file of `selftest_plan` lies in a rendered folder.

    None for a plan of whose images none holds the programs.
    """
    return next((_COMPOSE[image.name] for image in plan.images if image.name in _COMPOSE), None)


def selftest_plan(plan: Plan) -> Plan:
    """The plan that runs the self-test once on each card of `plan`, whose image has it."""
    services = tuple(_run(service) for service in plan.services if service.build in _COMPOSE)
    mounted = {volume.partition(":")[0] for service in services for volume in service.volumes}
    return structs.replace(
        plan,
        images=tuple(image for image in plan.images if image.name in _COMPOSE),
        services=services,
        volumes=tuple(volume for volume in plan.volumes if volume in mounted),
    )


def selftest_image(plan: Plan) -> ImagePlan:
    """The image with the CUDA programs alone, which runs with any CUDA driver."""
    image = next(image for image in plan.images if image.name in _COMPOSE)
    return ImagePlan(
        name="selftest",
        tag=f"zluda-stack/selftest:{image.variant.name}",
        variant=image.variant,
        development=image.development,
        runtime=image.runtime,
        components=image.components,
        methods=image.methods,
    )


def _run(server: Service) -> Service:
    kept = ("HSA_OVERRIDE", "AMD_VISIBLE_DEVICES")
    return structs.replace(
        server,
        name=server.name.replace("inference", "selftest"),
        command=(_PROGRAM,),
        environment={key: value for key, value in server.environment.items() if key in kept},
        volumes=tuple(volume for volume in server.volumes if volume.endswith(f":{_CACHE}")),
        depends_on={},
        health=None,
        one_shot=True,
    )
