"""Which of a plan's images a stack is made from."""

from __future__ import annotations

from zluda_stack.plan.types import ImagePlan, Plan

# How a build context names an image.
_IMAGE = "docker-image://"


def served_images(plan: Plan) -> tuple[ImagePlan, ...]:
    """The images that the services of `plan` are made from, and those that these are built on.

    They are in the plan's order, which is that of building.
    """
    served = {service.build for service in plan.services}
    under = {
        context.removeprefix(_IMAGE)
        for image in plan.images
        if image.name in served
        for context in image.contexts.values()
        if context.startswith(_IMAGE)
    }
    return tuple(image for image in plan.images if image.name in served or image.tag in under)
