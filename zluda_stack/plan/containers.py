"""The services of the docker engine.

What only the host knows stands as a ${VARIABLE}, so that the compose file is the same on every
machine; `host_environment` holds the values for this one.
"""

from __future__ import annotations

from zluda_stack.catalog.schema import Catalog
from zluda_stack.plan.types import (
    EndpointPlan,
    GpuDevice,
    HealthCheck,
    ModelPlan,
    Service,
)

_FROM_HOST = "run `zluda-stack render` on the host that has the card"
VOLUMES = ("models", "zluda-cache")
# ZLUDA compiles kernels at first use, for minutes; until then the server is starting, not ill.
_FIRST_START_S = 3600


def services(catalog: Catalog, model: ModelPlan) -> tuple[Service, ...]:
    """The model fetcher, the CUDA-only server and the endpoint, in starting order."""
    return (_model_service(model), _inference_service(catalog, model), _endpoint_service(catalog))


def host_environment(gpu: GpuDevice, model: ModelPlan, endpoint: EndpointPlan) -> dict[str, str]:
    """The values of this host for the variables in the services; unknown ones are left out."""
    values = {
        "ZLUDA_STACK_GPU": gpu.target,
        "ZLUDA_STACK_MODEL": model.name,
        "ZLUDA_STACK_CONTEXT": str(model.context),
        "ZLUDA_STACK_BIND": endpoint.bind,
        "ZLUDA_STACK_PORT": str(endpoint.port),
        "HOST_RENDER_NODE": gpu.render_node,
        "HOST_KFD_GID": None if gpu.kfd_gid is None else str(gpu.kfd_gid),
        "HOST_RENDER_GID": None if gpu.render_gid is None else str(gpu.render_gid),
        "ZLUDA_STACK_HSA_OVERRIDE": gpu.hsa_override,
    }
    return {key: value for key, value in values.items() if value}


def _required(variable: str) -> str:
    return f"${{{variable}:?{_FROM_HOST}}}"


def _model_service(model: ModelPlan) -> Service:
    return Service(
        name="model",
        image="zluda-stack/endpoint:local",
        command=("models", "pull", f"${{ZLUDA_STACK_MODEL:-{model.name}}}"),
        volumes=("models:/models",),
        tmpfs=("/tmp",),  # noqa: S108 -- a path in the container
        one_shot=True,
    )


def _inference_service(catalog: Catalog, model: ModelPlan) -> Service:
    port = catalog.defaults.inference_port
    return Service(
        name="inference",
        image=f"zluda-stack/inference:{_required('ZLUDA_STACK_GPU')}",
        environment={
            "MODEL": f"${{ZLUDA_STACK_MODEL:-{model.name}}}",
            "CONTEXT": f"${{ZLUDA_STACK_CONTEXT:-{model.context}}}",
            "PORT": str(port),
            # The image's entrypoint exports it only when it is not empty: an empty
            # HSA_OVERRIDE_GFX_VERSION hides every GPU (case C06).
            "HSA_OVERRIDE": "${ZLUDA_STACK_HSA_OVERRIDE:-}",
        },
        devices=("/dev/kfd:/dev/kfd", f"{_required('HOST_RENDER_NODE')}:/dev/dri/renderD128"),
        group_add=(_required("HOST_KFD_GID"), _required("HOST_RENDER_GID")),
        volumes=("models:/models:ro", "zluda-cache:/cache"),
        tmpfs=("/tmp",),  # noqa: S108 -- a path in the container
        depends_on={"model": "service_completed_successfully"},
        health=HealthCheck(
            test=("CMD", "curl", "-fsS", f"http://127.0.0.1:{port}/health"),
            interval=10,
            timeout=5,
            start_period=_FIRST_START_S,
            retries=6,
        ),
        # llama.cpp's server takes up to 28 s to end after SIGTERM.
        stop_grace=60,
    )


def _endpoint_service(catalog: Catalog) -> Service:
    port = catalog.defaults.port
    return Service(
        name="endpoint",
        image="zluda-stack/endpoint:local",
        command=(
            "serve",
            "--bind=0.0.0.0",
            f"--port={port}",
            f"--upstream=http://inference:{catalog.defaults.inference_port}",
            "--key-file=/run/secrets/api_key",
        ),
        publish=(("${ZLUDA_STACK_BIND:-127.0.0.1}", f"${{ZLUDA_STACK_PORT:-{port}}}", port),),
        secrets=("api_key",),
        tmpfs=("/tmp",),  # noqa: S108 -- a path in the container
        depends_on={"inference": "service_healthy"},
        health=HealthCheck(
            test=("CMD", "python3", "-m", "zluda_stack.gateway", "--check", str(port)),
            interval=10,
            timeout=5,
            start_period=30,
            retries=3,
        ),
        stop_grace=60,
    )
