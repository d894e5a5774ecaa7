"""Small plans made by hand, for the renderers."""

from __future__ import annotations

from zluda_stack.catalog.load import load
from zluda_stack.plan.combination import components_of
from zluda_stack.plan.profiles import traits
from zluda_stack.plan.types import (
    EndpointPlan,
    HealthCheck,
    ImagePlan,
    ModelPlan,
    Plan,
    Service,
)
from zluda_stack.plan.variant import choose_bases


def image(name: str = "zluda", variant: str = "auto") -> ImagePlan:
    """The image `name` of a base variant, with the catalogue's default components."""
    catalog = load()
    combination = catalog.combinations[catalog.defaults.combination]
    bases = choose_bases(catalog, variant, None)
    return ImagePlan(
        name=name,
        tag=f"zluda-stack/{name}:test",
        variant=bases.variant,
        development=bases.development,
        runtime=bases.runtime,
        components=components_of(catalog, combination)
        | {name: catalog.components[name] for name in traits("webui").parts},
    )


SERVER = Service(
    name="server",
    image="example/server:1",
    command=("serve", "--model", "${MODEL}"),
    environment={"VERSION": "10.3.0", "FLAG": "yes", "PORT": "8081"},
    devices=("/dev/kfd:/dev/kfd", "${HOST_RENDER_NODE:?render it}:/dev/dri/renderD128"),
    group_add=("${HOST_KFD_GID:?render it}",),
    volumes=("models:/models:ro",),
    tmpfs=("/tmp",),  # noqa: S108 -- a path in the container
    publish=(("${BIND:-127.0.0.1}", "${PORT:-8080}", 8080),),
    secrets=("api_key",),
    depends_on={"fetch": "service_completed_successfully"},
    health=HealthCheck(test=("CMD", "true"), interval=10, timeout=5, start_period=60, retries=3),
    stop_grace=60,
)
FETCH = Service(name="fetch", image="example/fetch:1", one_shot=True)


def plan(
    *services: Service,
    name: str = "default",
    images: tuple[ImagePlan, ...] = (),
    host: dict[str, str] | None = None,
) -> Plan:
    """A docker plan with these services."""
    return Plan(
        name=name,
        engine="docker",
        headline="a plan for a test",
        gpus=(),
        skipped=(),
        model=ModelPlan(name="m", catalogued=None, path=None, context=512, trained_context=None),
        endpoint=EndpointPlan(bind="127.0.0.1", port=8080, host="127.0.0.1"),
        client=None,
        threads=None,
        images=images,
        services=services,
        volumes=("models",),
        host_environment=host or {},
    )
