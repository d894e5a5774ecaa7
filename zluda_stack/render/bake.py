"""Every image of every gfx target as one file for `docker buildx bake`."""

from __future__ import annotations

import json
from collections.abc import Iterable

from zluda_stack.plan.types import ImagePlan, Plan
from zluda_stack.render.labels import labels

_CACHE_FROM, _CACHE_TO = "CACHE_FROM", "CACHE_TO"


def render_bake(cpu: Plan, gpus: Iterable[Plan], toolbox: ImagePlan) -> str:
    """docker-bake.json: each image as a target; groups `cpu`, `gpu`, `toolbox`, `default` (cpu).

    An image that differs by gfx target is named IMAGE-TARGET. The variables CACHE_FROM and
    CACHE_TO name folders for a build cache, one below them for each target; without them there
    is none, since Docker's own builder cannot export one. The same plans give the same bytes.
    """
    on_cpu = {image.name: image for image in cpu.images}
    on_gpu = _by_target(gpus)
    every = on_gpu | on_cpu | {toolbox.name: toolbox}
    document = {
        "variable": {name: {"default": ""} for name in (_CACHE_FROM, _CACHE_TO)},
        "group": {
            "default": {"targets": sorted(on_cpu)},
            "cpu": {"targets": sorted(on_cpu)},
            "gpu": {"targets": sorted(on_gpu)},
            "toolbox": {"targets": [toolbox.name]},
        },
        "target": {name: _target(name, image) for name, image in sorted(every.items())},
    }
    return json.dumps(document, indent=2) + "\n"


def _by_target(plans: Iterable[Plan]) -> dict[str, ImagePlan]:
    """The images of all plans; one that is the same in all of them stands once."""
    every = list(plans)
    found: dict[str, ImagePlan] = {}
    for plan in every:
        for image in plan.images:
            shared = all(image in other.images for other in every)
            target = plan.gpu.target if plan.gpu else "cpu"
            found[image.name if shared else f"{image.name}-{target}"] = image
    return found


def _target(name: str, image: ImagePlan) -> dict[str, object]:
    entries: dict[str, object] = {
        "context": ".",
        "dockerfile": f"images/{image.name}/Dockerfile",
        "target": image.name,
        "tags": [image.tag],
        "args": dict(sorted(image.arguments.items())),
        "contexts": dict(sorted(image.contexts.items())),
        "labels": labels(image),
        "cache-from": _cache(_CACHE_FROM, f"type=local,src=${{{_CACHE_FROM}}}/{name}"),
        "cache-to": _cache(_CACHE_TO, f"type=local,dest=${{{_CACHE_TO}}}/{name},mode=max"),
    }
    return {key: value for key, value in entries.items() if value}


def _cache(variable: str, entry: str) -> str:
    """A list with `entry` when the variable is set, else an empty list."""
    return f'${{{variable} == "" ? [] : ["{entry}"]}}'
