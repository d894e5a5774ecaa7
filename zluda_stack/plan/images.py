"""The images that a stack is built from, in the order in which they are built."""

from __future__ import annotations

from pathlib import PurePosixPath

from msgspec import structs

from zluda_stack import __version__
from zluda_stack.catalog.schema import Catalog, Combination, Component
from zluda_stack.errors import PlanRefused
from zluda_stack.plan.combination import LLAMA, combination_of, components_of
from zluda_stack.plan.profiles import traits
from zluda_stack.plan.types import GpuDevice, ImagePlan
from zluda_stack.plan.variables import of_card, optional
from zluda_stack.plan.variant import Bases
from zluda_stack.settings import Settings


def gpu_images(
    catalog: Catalog, settings: Settings, bases: Bases, gpu: GpuDevice
) -> tuple[ImagePlan, ...]:
    """The images of a stack on `gpu`, and on any other of its gfx target.

    When ZLUDA is built from source its own image comes first: its hours are then a step that can
    be repeated by itself, and the inference image takes the same stages from BuildKit's cache.
    Raises PlanRefused for a way to come by ZLUDA that there is not, and for a combination that is
    not for the profile. The native profile has an image of its own, with neither ZLUDA nor CUDA.
    """
    combination = combination_of(catalog, settings)
    if not traits(settings.profile).translates:
        components = _components(catalog, settings)
        image = traits(settings.profile).image
        return _on_rocm(image, components, bases, gpu), _endpoint(components, bases)
    methods = _methods(settings, bases)
    components = components_of(catalog, combination) | _instead(catalog, methods)
    inference = structs.replace(
        _inference(components, bases, settings, gpu, combination),
        methods=methods,
        contexts=_zluda_contexts(settings),
    )
    others = inference, _endpoint(components, bases)
    if settings.zluda != "source":
        return others
    return _image("zluda", _short_commit(components["zluda"]), components, bases), *others


def _methods(settings: Settings, bases: Bases) -> dict[str, str]:
    """The folders of images/ that are taken in the place of a part, by that part."""
    methods = {} if settings.zluda == "source" else {"zluda": f"zluda-{settings.zluda}"}
    if settings.cuda_toolkit == "apt":
        methods["cuda-toolkit"] = bases.variant.cuda_apt
    return methods


def _zluda_contexts(settings: Settings) -> dict[str, str]:
    """The build context that holds ZLUDA; none unless it was built elsewhere."""
    if settings.zluda != "path":
        return {}
    if not settings.zluda_path:
        raise PlanRefused(
            "zluda is path, and no path was given",
            "Give the folder that holds libcuda.so: --zluda path --zluda-path DIR.",
        )
    # People give the library where the folder is meant (case C28).
    path = PurePosixPath(settings.zluda_path)
    return {"zluda-path": str(path.parent if path.suffix == ".so" else path)}


def cpu_images(catalog: Catalog, settings: Settings, bases: Bases) -> tuple[ImagePlan, ...]:
    """The images of a stack without a GPU. Raises PlanRefused as `gpu_images` does."""
    components = _components(catalog, settings)
    known = traits(settings.profile)
    version = components[next(iter(known.parts), LLAMA)].version
    server = _image(known.cpu_image, version, components, bases)
    return server, _endpoint(components, bases)


def _components(catalog: Catalog, settings: Settings) -> dict[str, Component]:
    """What the images of the combination and of the profile are made of."""
    own = {name: catalog.components[name] for name in traits(settings.profile).parts}
    return components_of(catalog, combination_of(catalog, settings)) | own


def _inference(
    components: dict[str, Component],
    bases: Bases,
    settings: Settings,
    gpu: GpuDevice,
    combination: Combination,
) -> ImagePlan:
    """The one image that differs by gfx target: in the compose file the host's stands for it."""
    return structs.replace(
        _image("inference", "", components, bases),
        tag=_server_tag("inference", gpu.target, combination.mark),
        compose_tag=_server_tag("inference", of_card("ZLUDA_STACK_GPU"), combination.mark),
        budgets=combination.budgets,
        arguments={
            "GFX_TARGET": gpu.target,
            "KERNEL_TARGET": gpu.kernel_target or "",
            "ACCEPT_CUDA_EULA": "yes" if settings.accept_cuda_eula else "",
        },
        compose_arguments={
            "GFX_TARGET": of_card("ZLUDA_STACK_GPU"),
            "KERNEL_TARGET": optional("ZLUDA_STACK_KERNEL_TARGET"),
            "ACCEPT_CUDA_EULA": optional("ZLUDA_STACK_ACCEPT_CUDA_EULA"),
        },
    )


def _on_rocm(
    name: str, components: dict[str, Component], bases: Bases, gpu: GpuDevice
) -> ImagePlan:
    """llama.cpp's HIP build in the image `name`, which differs by gfx target as inference does."""
    return structs.replace(
        _image(name, "", components, bases),
        tag=_server_tag(name, gpu.target),
        compose_tag=_server_tag(name, of_card("ZLUDA_STACK_GPU")),
        arguments={"GFX_TARGET": gpu.target, "KERNEL_TARGET": gpu.kernel_target or ""},
        compose_arguments={
            "GFX_TARGET": of_card("ZLUDA_STACK_GPU"),
            "KERNEL_TARGET": optional("ZLUDA_STACK_KERNEL_TARGET"),
        },
    )


def _server_tag(image: str, target: str, mark: str = "") -> str:
    """The tag of a server's `image` for `target`: a gfx target, or the variable for it."""
    return f"zluda-stack/{image}:{target}{mark and '-'}{mark}"


def _endpoint(components: dict[str, Component], bases: Bases) -> ImagePlan:
    return _image("endpoint", __version__, components, bases)


def _image(name: str, tag: str, components: dict[str, Component], bases: Bases) -> ImagePlan:
    return ImagePlan(
        name=name,
        tag=f"zluda-stack/{name}:{tag}-{bases.variant.name}",
        variant=bases.variant,
        development=bases.development,
        runtime=bases.runtime,
        components=components,
    )


def _instead(catalog: Catalog, methods: dict[str, str]) -> dict[str, Component]:
    """What `methods` take in the place of a part, where the catalogue pins it."""
    names = (name for name in methods.values() if name in catalog.components)
    return {name: catalog.components[name] for name in names}


def _short_commit(component: Component) -> str:
    commit = component.git.commit if component.git else None
    return (commit or component.version)[:12]
