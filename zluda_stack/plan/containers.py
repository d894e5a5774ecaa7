"""The services of the docker engine.

What only the host knows stands as a ${VARIABLE}, so that the compose file is the same on every
machine; `host_environment` holds the values for this one.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from zluda_stack.catalog.schema import Catalog
from zluda_stack.plan.images import inference_tag
from zluda_stack.plan.types import (
    EndpointPlan,
    GpuDevice,
    HealthCheck,
    ImagePlan,
    ModelPlan,
    Service,
)
from zluda_stack.plan.variables import optional, required

CPU_VOLUMES: tuple[str, ...] = ("models",)
GPU_VOLUMES = (*CPU_VOLUMES, "zluda-cache")
# ZLUDA compiles kernels at first use, for minutes; until then the server is starting, not ill.
_FIRST_START_S = 3600
_CPU_START_S = 600
# llama.cpp's server takes up to 28 s to end after SIGTERM, and the endpoint waits for requests.
_STOP_S = 60
_WRITABLE = ("/tmp",)  # noqa: S108 -- a path in the container
_MODEL_FILE = "/model.gguf"
# The group of the images' own user (images/_macros/user.j2).
_OWN_GID = "10001"


def gpu_services(
    catalog: Catalog, images: Iterable[ImagePlan], model: ModelPlan
) -> tuple[Service, ...]:
    """The model fetcher, the CUDA-only server and the endpoint, in starting order."""
    server = _server(catalog, model, "inference", inference_tag(required("ZLUDA_STACK_GPU")))
    return _around(catalog, images, model, _on_gpu(server))


def cpu_services(
    catalog: Catalog, images: Iterable[ImagePlan], model: ModelPlan, threads: int | None
) -> tuple[Service, ...]:
    """The model fetcher, llama.cpp's server for CPUs and the endpoint, in starting order."""
    image = next(image for image in images if image.name == "llama-cpu")
    server = _server(catalog, model, image.name, image.tag)
    environment = server.environment | {
        "THREADS": optional("ZLUDA_STACK_THREADS", str(threads or ""))
    }
    return _around(catalog, images, model, structs.replace(server, environment=environment))


def host_environment(
    gpu: GpuDevice | None, model: ModelPlan, endpoint: EndpointPlan, *, terms_accepted: bool
) -> dict[str, str]:
    """The values of this host for the variables in the services; unknown ones are left out."""
    values = {
        "ZLUDA_STACK_MODEL": model.name,
        "ZLUDA_STACK_CONTEXT": str(model.context),
        "ZLUDA_STACK_BIND": endpoint.bind,
        "ZLUDA_STACK_PORT": str(endpoint.port),
    }
    if gpu is not None:
        values |= _gpu_environment(gpu)
        values["ZLUDA_STACK_ACCEPT_CUDA_EULA"] = "yes" if terms_accepted else ""
    return {key: value for key, value in values.items() if value}


def _gpu_environment(gpu: GpuDevice) -> dict[str, str]:
    other_gid = None if gpu.render_gid == gpu.kfd_gid else gpu.render_gid
    return {
        "ZLUDA_STACK_GPU": gpu.target,
        "ZLUDA_STACK_KERNEL_TARGET": gpu.kernel_target or "",
        "HOST_RENDER_NODE": gpu.render_node or "",
        "HOST_KFD_GID": "" if gpu.kfd_gid is None else str(gpu.kfd_gid),
        "HOST_RENDER_GID": "" if other_gid is None else str(other_gid),
        "ZLUDA_STACK_HSA_OVERRIDE": gpu.hsa_override or "",
    }


def _around(
    catalog: Catalog, images: Iterable[ImagePlan], model: ModelPlan, server: Service
) -> tuple[Service, ...]:
    """`server` between what fetches its model, unless that is a file of the host, and clients."""
    image = next(image for image in images if image.name == "endpoint")
    endpoint = _endpoint_service(catalog, image)
    if model.path is not None:
        mount = (f"{model.path}:{_MODEL_FILE}:ro",)
        environment = server.environment | {"MODEL_FILE": _MODEL_FILE}
        return structs.replace(server, volumes=mount, environment=environment), endpoint
    waits = {"model": "service_completed_successfully"}
    stored = structs.replace(
        server, volumes=("models:/models:ro", *server.volumes), depends_on=waits
    )
    return _model_service(image, model), stored, endpoint


def _model_service(image: ImagePlan, model: ModelPlan) -> Service:
    return Service(
        name="model",
        image=image.tag,
        build=image.name,
        command=(
            *("python", "-m", "zluda_stack", "models", "pull"),
            optional("ZLUDA_STACK_MODEL", model.name),
        ),
        volumes=("models:/models",),
        tmpfs=_WRITABLE,
        one_shot=True,
    )


def _server(catalog: Catalog, model: ModelPlan, build: str, tag: str) -> Service:
    port = catalog.defaults.inference_port
    return Service(
        name="inference",
        image=tag,
        build=build,
        environment={
            "MODEL": optional("ZLUDA_STACK_MODEL", model.name),
            "CONTEXT": optional("ZLUDA_STACK_CONTEXT", str(model.context)),
            "PORT": str(port),
        },
        tmpfs=_WRITABLE,
        health=_health(port, start_period=_CPU_START_S),
        stop_grace=_STOP_S,
    )


def _on_gpu(server: Service) -> Service:
    root, node = optional("HOST_ROOT"), required("HOST_RENDER_NODE")
    # Compose refuses a gid that stands twice, and on most hosts both nodes have the same: then
    # the second variable is left out, and the own group of the image's user stands in its place.
    gids = (required("HOST_KFD_GID"), optional("HOST_RENDER_GID", _OWN_GID))
    # The image's entrypoint exports it only when it is not empty: an empty
    # HSA_OVERRIDE_GFX_VERSION hides every GPU (case C06).
    override = {"HSA_OVERRIDE": optional("ZLUDA_STACK_HSA_OVERRIDE")}
    return structs.replace(
        server,
        environment=server.environment | override,
        # ROCm opens the render node by the number in the KFD topology, so it keeps its name
        # (open_drm_render_device of libhsakmt).
        devices=(f"{root}/dev/kfd:/dev/kfd", f"{root}{node}:{node}"),
        group_add=gids,
        volumes=("zluda-cache:/cache",),
        health=_health(int(server.environment["PORT"]), start_period=_FIRST_START_S),
    )


def _endpoint_service(catalog: Catalog, image: ImagePlan) -> Service:
    port = catalog.defaults.port
    published = (
        optional("ZLUDA_STACK_BIND", "127.0.0.1"),
        optional("ZLUDA_STACK_PORT", str(port)),
        port,
    )
    return Service(
        name="endpoint",
        image=image.tag,
        build=image.name,
        command=(
            *("python", "-m", "zluda_stack.gateway"),
            "--bind=0.0.0.0",
            f"--port={port}",
            f"--upstream=http://inference:{catalog.defaults.inference_port}",
            "--key-hashes=/run/secrets/api_key_hashes",
        ),
        publish=(published,),
        secrets=("api_key_hashes",),
        tmpfs=_WRITABLE,
        depends_on={"inference": "service_healthy"},
        health=_health(port, start_period=30),
        stop_grace=_STOP_S,
    )


def _health(port: int, *, start_period: int) -> HealthCheck:
    return HealthCheck(
        test=("CMD", "is-healthy", str(port)),
        interval=10,
        timeout=6,
        start_period=start_period,
        retries=6,
    )
