"""The images that a stack is built from, in the order in which they are built."""

from __future__ import annotations

from zluda_stack.catalog.schema import Catalog, Component
from zluda_stack.errors import PlanRefused
from zluda_stack.plan.types import ImagePlan
from zluda_stack.plan.variant import Bases
from zluda_stack.settings import Settings


def gpu_images(catalog: Catalog, settings: Settings, bases: Bases) -> tuple[ImagePlan, ...]:
    """The images of a stack on a GPU.

    ZLUDA's own comes first: its hours are then a step that can be repeated by itself, and the
    inference image takes the same stages from BuildKit's cache.
    """
    if settings.zluda != "source":
        raise PlanRefused(
            f"ZLUDA by the method {settings.zluda!r} is not part of this version",
            "Use --zluda source, which builds ZLUDA at its pinned commit.",
        )
    components = _components(catalog)
    return (_zluda(components, bases),)


def _zluda(components: dict[str, Component], bases: Bases) -> ImagePlan:
    commit = _short_commit(components["zluda"])
    return _image("zluda", f"{commit}-{bases.variant.name}", components, bases)


def _image(name: str, tag: str, components: dict[str, Component], bases: Bases) -> ImagePlan:
    return ImagePlan(
        name=name,
        tag=f"zluda-stack/{name}:{tag}",
        variant=bases.variant,
        development=bases.development,
        runtime=bases.runtime,
        components=components,
    )


def _components(catalog: Catalog) -> dict[str, Component]:
    combination = catalog.combinations[catalog.defaults.combination]
    return {name: catalog.components[name] for name in combination.components}


def _short_commit(component: Component) -> str:
    commit = component.git.commit if component.git else None
    return (commit or component.version)[:12]
