"""The labels that tell of an image, wherever it is found, what it was built from."""

from __future__ import annotations

from zluda_stack.plan.types import ImagePlan
from zluda_stack.render.content_key import content_key
from zluda_stack.render.images import read_image, read_parts

BUILT_FROM = "zluda-stack.built-from"


def labels(image: ImagePlan) -> dict[str, str]:
    """OCI's labels, the pinned components with their versions, and the key of all contents."""
    base = image.runtime
    known = {
        "org.opencontainers.image.title": read_image(image.name).title,
        "org.opencontainers.image.base.name": f"{base.name}:{base.tag}",
        "org.opencontainers.image.base.digest": base.digest,
        "zluda-stack.components": ", ".join(_components(image)),
        BUILT_FROM: content_key(image),
    }
    return {name: text for name, text in known.items() if text}


def _components(image: ImagePlan) -> list[str]:
    needed = {name for part in read_parts(image) for name in part.needs.components}
    components = (image.components[name] for name in sorted(needed & image.components.keys()))
    return [f"{component.name} {component.version}" for component in components]
