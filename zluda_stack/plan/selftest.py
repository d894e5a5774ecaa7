"""The CUDA self-test as a plan of its own: the same image and cards as the stack's, no server."""

from __future__ import annotations

from msgspec import structs

from zluda_stack.plan.types import ImagePlan, Plan, Service

_IMAGE = "inference"
_PROGRAM = "/opt/selftest/selftest"
_CACHE = "/cache"


def selftest_plan(plan: Plan) -> Plan:
    """The plan that runs the self-test once on each card of `plan`, which is for a GPU."""
    services = tuple(_run(service) for service in plan.services if service.build == _IMAGE)
    mounted = {volume.partition(":")[0] for service in services for volume in service.volumes}
    return structs.replace(
        plan,
        images=tuple(image for image in plan.images if image.name == _IMAGE),
        services=services,
        volumes=tuple(volume for volume in plan.volumes if volume in mounted),
    )


def selftest_image(plan: Plan) -> ImagePlan:
    """The image with the programs alone, which runs with any CUDA driver."""
    image = next(image for image in plan.images if image.name == _IMAGE)
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
        name=server.name.replace(_IMAGE, "selftest"),
        command=(_PROGRAM,),
        environment={key: value for key, value in server.environment.items() if key in kept},
        volumes=tuple(volume for volume in server.volumes if volume.endswith(f":{_CACHE}")),
        depends_on={},
        health=None,
        one_shot=True,
    )
