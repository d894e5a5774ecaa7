"""The services of the docker engine.

What only the host knows stands as a ${VARIABLE}, so that the compose file is the same on every
machine; `host_environment` holds the values for this one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, structs

from zluda_stack.catalog.schema import Catalog
from zluda_stack.plan.combination import LLAMA
from zluda_stack.plan.passthrough import RUNTIME, Passthrough, Way
from zluda_stack.plan.types import (
    EndpointPlan,
    GpuDevice,
    HealthCheck,
    ImagePlan,
    ModelPlan,
    Service,
)
from zluda_stack.plan.variables import by_program, of_card, optional

CPU_VOLUMES: tuple[str, ...] = ("models",)
_CPU_START_S = 600
# llama.cpp's server takes up to 28 s to end after SIGTERM, and the endpoint waits for requests.
_STOP_S = 60
_WRITABLE = ("/tmp",)  # noqa: S108 -- a path in the container
_MODEL_FILE = "/model.gguf"
_PART = re.compile(r"(?P<stem>.*)-00001-of-(?P<count>[0-9]{5})\.gguf")
# The group of the images' own user (images/_macros/user.j2).
_OWN_GID = "10001"
_KFD = "/dev/kfd"
SERVER = "inference"
FETCHER = "model"


class _OnCard(Struct, frozen=True, kw_only=True):
    """How a server that computes on cards differs from others, by what it is built with.

    `device` is llama.cpp's name of the first card without its number; `start_s` how long the server
    may be starting, and not ill; `caches` whether it compiles kernels that a volume keeps.
    """

    device: str
    start_s: int
    caches: bool


# By image. ZLUDA compiles kernels at first use, for minutes; without it only the model is read.
_ON_CARD = {
    "inference": _OnCard(device="CUDA", start_s=3600, caches=True),
    "native": _OnCard(device="ROCm", start_s=1800, caches=False),
    "webui": _OnCard(device="ROCm", start_s=1800, caches=False),
}
_ON_CPU = ("llama-cpu", "webui-cpu")
# What the host's .env calls a card, by the way in which it is passed.
_NAMES: dict[Way, str] = {
    "devices": "HOST_RENDER_NODE",
    "cdi": "HOST_CDI_DEVICE",
    "runtime": "HOST_AMD_DEVICE",
}


def gpu_services(
    catalog: Catalog,
    images: Iterable[ImagePlan],
    models: Sequence[ModelPlan],
    gpus: tuple[GpuDevice, ...],
    entry: Passthrough,
    *,
    spread: bool = False,
) -> tuple[Service, ...]:
    """The model fetcher, a server for each card, which never computes on the CPU, and the endpoint.

    They are in starting order. `images` say what computes on the cards, and `models` what the
    servers serve: one model for each card, or one for all. With `spread` one server has all cards.
    """
    images = tuple(images)
    server = _card_server(catalog, images, models[0])
    if spread:
        return _around(catalog, images, models, (_on_all(server, gpus, entry),))
    replicas = tuple(_on_gpu(server, number, entry) for number in range(1, len(gpus) + 1))
    if len(models) > 1:
        replicas = tuple(map(_with_own_model, replicas, itertools.count(1), models))
    return _around(catalog, images, models, replicas)


def gpu_volumes(images: Iterable[ImagePlan], servers: int) -> tuple[str, ...]:
    """The named volumes of a stack of these images with so many servers on cards."""
    if not _ON_CARD[_card_image(images).name].caches:
        return CPU_VOLUMES
    return (*CPU_VOLUMES, *(_cache(number) for number in range(1, servers + 1)))


def cpu_services(
    catalog: Catalog, images: Iterable[ImagePlan], model: ModelPlan, threads: int | None
) -> tuple[Service, ...]:
    """The model fetcher, llama.cpp's server for CPUs and the endpoint, in starting order."""
    image = next(image for image in images if image.name in _ON_CPU)
    server = _server(catalog, model, image.name, image.tag)
    environment = server.environment | {
        "THREADS": optional("ZLUDA_STACK_THREADS", str(threads or ""))
    }
    return _around(catalog, images, (model,), (structs.replace(server, environment=environment),))


def host_environment(
    gpus: tuple[GpuDevice, ...],
    entry: Passthrough,
    models: Sequence[ModelPlan],
    endpoint: EndpointPlan,
    *,
    terms_accepted: bool,
) -> dict[str, str]:
    """The values of this host for the variables in the services; unknown ones are left out."""
    values = {
        "ZLUDA_STACK_BIND": endpoint.bind,
        "ZLUDA_STACK_PORT": str(endpoint.port),
    }
    for number, model in enumerate(models, start=1):
        values |= _model_environment(number, model, on_card=bool(gpus))
    if gpus:
        values |= _target_environment(gpus[0])
        for number, (gpu, name) in enumerate(zip(gpus, entry.names, strict=True), start=1):
            values |= _card_environment(number, gpu, name, entry)
        values["ZLUDA_STACK_ACCEPT_CUDA_EULA"] = "yes" if terms_accepted else ""
    return {key: value for key, value in values.items() if value}


def _target_environment(gpu: GpuDevice) -> dict[str, str]:
    return {
        "ZLUDA_STACK_GPU": gpu.target,
        "ZLUDA_STACK_KERNEL_TARGET": gpu.kernel_target or "",
        "ZLUDA_STACK_HSA_OVERRIDE": gpu.hsa_override or "",
    }


def _model_environment(number: int, model: ModelPlan, *, on_card: bool) -> dict[str, str]:
    """What server `number` serves, and how it is served so that it fits its card."""
    values = {"ZLUDA_STACK_MODEL": model.name, "ZLUDA_STACK_CONTEXT": str(model.context)}
    if on_card:
        layers = model.gpu_layers
        values |= {
            "ZLUDA_STACK_BATCH": str(model.batch),
            "ZLUDA_STACK_GPU_LAYERS": "" if layers is None else str(layers),
            "ZLUDA_STACK_CPU_MOE": str(model.cpu_moe or ""),
            "ZLUDA_STACK_TENSOR_SPLIT": ",".join(map(str, model.split)),
        }
    return {name + _suffix(number): value for name, value in values.items()}


def _card_environment(
    number: int, gpu: GpuDevice, name: str | None, entry: Passthrough
) -> dict[str, str]:
    """Where the card of replica `number` is; `name` is what AMD's toolkit calls it."""
    card = gpu.render_node if entry.way == "devices" else name
    values = {_NAMES[entry.way] + _suffix(number): card or ""}
    if card and entry.way == "devices":
        values["HOST_KFD"] = _KFD
    if not entry.keep_groups:
        other_gid = None if gpu.render_gid == gpu.kfd_gid else gpu.render_gid
        values["HOST_KFD_GID"] = "" if gpu.kfd_gid is None else str(gpu.kfd_gid)
        values["HOST_RENDER_GID" + _suffix(number)] = "" if other_gid is None else str(other_gid)
    return values


def _around(
    catalog: Catalog,
    images: Iterable[ImagePlan],
    models: Sequence[ModelPlan],
    servers: tuple[Service, ...],
) -> tuple[Service, ...]:
    """`servers` between what fetches their models, unless that is the host's file, and clients."""
    image = next(image for image in images if image.name == "endpoint")
    named = _names(models) if len(models) > 1 else ()
    endpoint = _endpoint_service(catalog, image, servers, named)
    path = models[0].path
    if path is not None:
        return (*(_with_file(server, path) for server in servers), endpoint)
    stored = (_with_store(server) for server in servers)
    return _model_service(image, models), *stored, endpoint


def _with_own_model(server: Service, number: int, model: ModelPlan) -> Service:
    """Replica `number`, whose card serves another model than the first card does."""
    own = {
        "MODEL": _name(number, model),
        "CONTEXT": optional("ZLUDA_STACK_CONTEXT" + _suffix(number), str(model.context)),
        "BATCH": optional("ZLUDA_STACK_BATCH" + _suffix(number)),
        "GPU_LAYERS": optional("ZLUDA_STACK_GPU_LAYERS" + _suffix(number)),
        "CPU_MOE": optional("ZLUDA_STACK_CPU_MOE" + _suffix(number)),
    }
    return structs.replace(server, environment=server.environment | own)


def _names(models: Sequence[ModelPlan]) -> tuple[str, ...]:
    """What the servers' models are called, for each server."""
    return tuple(_name(number, model) for number, model in enumerate(models, start=1))


def _name(number: int, model: ModelPlan) -> str:
    return optional("ZLUDA_STACK_MODEL" + _suffix(number), model.name)


def _with_file(server: Service, path: str) -> Service:
    """`server` with the user's file; llama.cpp finds the other parts of one by their names."""
    files = {path: _MODEL_FILE}
    parts = _PART.fullmatch(path)
    if parts is not None:
        every = (
            f"-{number:05d}-of-{parts['count']}" for number in range(1, int(parts["count"]) + 1)
        )
        files = {f"{parts['stem']}{part}.gguf": f"/model{part}.gguf" for part in every}
    mounts = (f"{file}:{target}:ro" for file, target in files.items())
    environment = server.environment | {"MODEL_FILE": next(iter(files.values()))}
    return structs.replace(server, volumes=(*mounts, *server.volumes), environment=environment)


def _with_store(server: Service) -> Service:
    return structs.replace(
        server,
        volumes=("models:/models:ro", *server.volumes),
        depends_on={FETCHER: "service_completed_successfully"},
    )


def _model_service(image: ImagePlan, models: Sequence[ModelPlan]) -> Service:
    return Service(
        name=FETCHER,
        image=image.tag,
        build=image.name,
        command=(
            *("python", "-m", "zluda_stack", "models", "pull"),
            *_names(models),
        ),
        # A mirror. A model that asks for a token is fetched into the user's store first.
        environment={"HF_ENDPOINT": optional("HF_ENDPOINT")},
        volumes=("models:/models",),
        tmpfs=_WRITABLE,
        one_shot=True,
    )


def _server(catalog: Catalog, model: ModelPlan, build: str, tag: str) -> Service:
    port = catalog.defaults.inference_port
    return Service(
        name=SERVER,
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


def _card_image(images: Iterable[ImagePlan]) -> ImagePlan:
    return next(image for image in images if image.name in _ON_CARD)


def _card_server(catalog: Catalog, images: Iterable[ImagePlan], model: ModelPlan) -> Service:
    image = _card_image(images)
    return _server(catalog, model, image.name, image.compose_tag or image.tag)


def _on_gpu(server: Service, number: int, entry: Passthrough) -> Service:
    """Replica `number`, from 1, of `server`: with a card and, if any, a kernel cache of its own."""
    kind = _ON_CARD[server.build or ""]
    # The image's entrypoint exports it only when it is not empty: an empty
    # HSA_OVERRIDE_GFX_VERSION hides every GPU (case C06).
    own = {
        "HSA_OVERRIDE": optional("ZLUDA_STACK_HSA_OVERRIDE"),
        "BATCH": optional("ZLUDA_STACK_BATCH"),
        "GPU_LAYERS": optional("ZLUDA_STACK_GPU_LAYERS"),
        "CPU_MOE": optional("ZLUDA_STACK_CPU_MOE"),
    }
    replica = structs.replace(
        server,
        name=SERVER + _suffix(number, "-"),
        environment=server.environment | own,
        group_add=_groups(number, entry),
        volumes=(f"{_cache(number)}:/cache",) if kind.caches else (),
        health=_health(int(server.environment["PORT"]), start_period=kind.start_s),
    )
    return _with_card(replica, number, entry.way)


def _on_all(server: Service, gpus: tuple[GpuDevice, ...], entry: Passthrough) -> Service:
    """`server` with all `gpus`; the model's layers are divided among them as .env says."""
    numbers = range(1, len(gpus) + 1)
    replicas = [_on_gpu(server, number, entry) for number in numbers]
    device = _ON_CARD[server.build or ""].device
    spread = {
        "DEVICES": ",".join(f"{device}{number - 1}" for number in numbers),
        "TENSOR_SPLIT": by_program("ZLUDA_STACK_TENSOR_SPLIT"),
    }
    if entry.way == "runtime":
        spread["AMD_VISIBLE_DEVICES"] = ",".join(_card(number, entry.way) for number in numbers)
    devices = dict.fromkeys(device for replica in replicas for device in replica.devices)
    return structs.replace(
        replicas[0],
        devices=tuple(devices),
        group_add=(*replicas[0].group_add, *_other_groups(gpus, entry)),
        environment=replicas[0].environment | spread,
    )


def _other_groups(gpus: tuple[GpuDevice, ...], entry: Passthrough) -> Iterator[str]:
    """Groups of further cards' render nodes that the first card's are not."""
    seen = {None, gpus[0].kfd_gid, gpus[0].render_gid}
    for number, gpu in enumerate(gpus, start=1):
        if gpu.render_gid not in seen and not entry.keep_groups:
            seen.add(gpu.render_gid)
            yield by_program("HOST_RENDER_GID" + _suffix(number))


def _with_card(server: Service, number: int, way: Way) -> Service:
    if way == "runtime":
        visible = {"AMD_VISIBLE_DEVICES": _card(number, way)}
        environment = server.environment | visible
        return structs.replace(server, runtime=RUNTIME, environment=environment)
    if way == "cdi":
        return structs.replace(server, devices=(_card(number, way),))
    root, node = optional("HOST_ROOT"), _card(number, way)
    # ROCm opens the render node by the number in the KFD topology, so it keeps its name
    # (open_drm_render_device of libhsakmt).
    return structs.replace(server, devices=(f"{root}{_KFD}:{_KFD}", f"{root}{node}:{node}"))


def _card(number: int, way: Way) -> str:
    """The variable that names the card of replica `number`."""
    name = _NAMES[way] + _suffix(number)
    # compose/host-env.sh knows the device nodes of one card.
    return of_card(name) if number == 1 and way == "devices" else by_program(name)


def _groups(number: int, entry: Passthrough) -> tuple[str, ...]:
    if entry.keep_groups:
        # Podman takes it alone only, and Docker does not know it (case C11).
        return ("keep-groups",)
    # Compose refuses a gid that stands twice, and on most hosts both nodes have the same: then
    # the second variable is left out, and the own group of the image's user stands in its place.
    render = optional("HOST_RENDER_GID" + _suffix(number), _OWN_GID)
    return (of_card("HOST_KFD_GID"), render)


def _cache(number: int) -> str:
    """The volume with the compiled kernels of replica `number`.

    Cards of one kind could share it, but ZLUDA opens its SQLite file without a busy timeout and
    writes at every look-up (zluda_cache/src/lib.rs at 8a7931be): while one replica compiles, the
    other would find the file locked, which counts as a miss, and compile for minutes again.
    """
    return "zluda-cache" + _suffix(number, "-")


def _suffix(number: int, mark: str = "_") -> str:
    """Nothing for the first card, so that a stack with one has the names of the committed file."""
    return "" if number == 1 else f"{mark}{number}"


def _endpoint_service(
    catalog: Catalog, image: ImagePlan, servers: tuple[Service, ...], named: tuple[str, ...]
) -> Service:
    """`named` are the servers' models where they differ: a request goes where its model is."""
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
            *(f"--upstream={upstream}" for upstream in _upstreams(servers, named)),
            "--key-hashes=/run/secrets/api_key_hashes",
            *_dialect(image),
        ),
        publish=(published,),
        secrets=("api_key_hashes",),
        tmpfs=_WRITABLE,
        depends_on={server.name: "service_healthy" for server in servers},
        health=_health(port, start_period=30),
        stop_grace=_STOP_S,
    )


def _dialect(image: ImagePlan) -> tuple[str, ...]:
    """What the endpoint is told of servers that do not speak all that it is used to."""
    llama = image.components.get(LLAMA)
    if llama is None or llama.server is None or llama.server.dialect == LLAMA:
        return ()
    return (f"--upstream-dialect={llama.server.dialect}",)


def _upstreams(servers: tuple[Service, ...], named: tuple[str, ...]) -> list[str]:
    """The servers as the endpoint's command line takes them."""
    urls = [f"http://{one.name}:{one.environment['PORT']}" for one in servers]
    return [f"{name}={url}" for name, url in zip(named, urls, strict=True)] if named else urls


def _health(port: int, *, start_period: int) -> HealthCheck:
    return HealthCheck(
        test=("CMD", "is-healthy", str(port)),
        interval=10,
        timeout=6,
        start_period=start_period,
        retries=6,
    )
