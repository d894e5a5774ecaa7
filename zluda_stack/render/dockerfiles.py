"""A planned image as the text of its Dockerfile."""

from __future__ import annotations

from zluda_stack.plan.types import ImagePlan
from zluda_stack.render.images import read_image
from zluda_stack.render.templates import render_template


def render_dockerfile(image: ImagePlan) -> str:
    """images/<name>/Dockerfile.j2 with the values of `image`. Raises StackError."""
    name = f"{image.name}/Dockerfile.j2"
    body = render_template(
        name,
        variant=image.variant,
        development=image.development,
        runtime=image.runtime,
        components=image.components,
        method=lambda part: image.methods.get(part, part),
        budgets=image.budgets or read_image(image.name).gates,
    )
    return f"# Rendered by zluda-stack from images/{name} and the catalogue; change those.\n{body}"
