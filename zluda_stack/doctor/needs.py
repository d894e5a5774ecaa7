"""What building an image takes, as images/<name>/image.yml says it."""

from __future__ import annotations

from zluda_stack.doctor.subject import StageNeed
from zluda_stack.plan.types import ImagePlan


def build_needs(image: ImagePlan) -> frozenset[StageNeed]:
    """The stages of `image`, those that it shares with others among them.

    Raises StackError when its description is missing or malformed.
    """
    from zluda_stack.render.images import read_parts  # only a plan with images needs YAML

    return frozenset(
        StageNeed(
            part=part.name,
            stage=stage.stage,
            disk_gb=stage.disk_gb,
            memory_gb=stage.memory_gb,
        )
        for part in read_parts(image)
        for stage in part.estimates
    )
