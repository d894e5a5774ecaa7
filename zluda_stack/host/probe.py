"""The one probe that reads this machine into HostFacts: no ROCm, no root, bounded in time."""

from __future__ import annotations

import importlib.util
import os
import platform
import stat
import threading
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Generic, TypeVar

from zluda_stack import paths
from zluda_stack.host import driver, network, pci, reading, system
from zluda_stack.host.cdi import read_cdi
from zluda_stack.host.docker import read_docker
from zluda_stack.host.facts import EmbeddedFacts, HostFacts, LocalModelFacts, RunningStack
from zluda_stack.host.kfd import read_topology
from zluda_stack.host.names import Names
from zluda_stack.host.nodes import device_node, render_nodes
from zluda_stack.host.podman import read_podman
from zluda_stack.host.security import read_security
from zluda_stack.host.user import read_user

# The variables by which users steer ROCm; nothing else of the environment is a fact.
GPU_VARIABLES = (
    "HSA_OVERRIDE_GFX_VERSION",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)
_EMBEDDED_MODULES = ("xllamacpp", "uvicorn", "httptools", "prometheus_client")
_T = TypeVar("_T")


def probe(model_path: Path | None, environ: Mapping[str, str], root: Path = Path("/")) -> HostFacts:
    """What is true of this machine now, after two seconds at most.

    `model_path` is the GGUF file that the settings name, if any; `root` is another tree than /
    for tests. Nothing that is missing, unreadable or damaged raises, it is absent from the
    facts; only this user's own folder of stacks must be readable, or OSError is raised.
    """
    docker = _Aside(lambda: read_docker(environ, root))
    podman = _Aside(lambda: read_podman(environ))
    machine = platform.uname()
    running, claimed = _running_stacks(), _claimed()
    names = Names(root)
    topology = read_topology(root, names)
    dxg = device_node(root, "/dev/dxg")
    return HostFacts(
        system=machine.system,
        machine=machine.machine,
        kernel=machine.release,
        cpu_count=os.cpu_count() or 1,
        memory_bytes=system.memory(root, "MemTotal"),
        memory_available_bytes=system.memory(root, "MemAvailable"),
        models_free_bytes=reading.free_bytes(paths.model_store()),
        models_ready=_models_ready(),
        distribution=system.distribution(root),
        container=system.container(root, environ),
        wsl=dxg is not None or "microsoft" in machine.release.lower(),
        dxg=dxg,
        kfd=device_node(root, "/dev/kfd"),
        dri_exists=reading.kind(root / "dev/dri") == stat.S_IFDIR,
        render_nodes=render_nodes(root),
        gpus=topology.gpus,
        hidden_nodes=topology.hidden,
        pci_displays=pci.displays(root, names),
        driver=driver.read_driver(root),
        kernel_options=driver.kernel_options(root),
        rocm_version=driver.rocm_version(root),
        user=read_user(root),
        security=read_security(root),
        cdi=read_cdi(root),
        network=network.read_network(environ),
        embedded=_embedded(),
        environment={key: environ[key] for key in GPU_VARIABLES if key in environ},
        listening_ports=_in_use(network.listening_ports(root), claimed),
        running=running + tuple(one for one in claimed if one not in running),
        local_model=None if model_path is None else _local_model(model_path),
        docker=docker.result(),
        podman=podman.result(),
    )


class _Aside(Generic[_T]):
    """A question that is asked while others are; `concurrent.futures` would import `logging`."""

    def __init__(self, ask: Callable[[], _T]) -> None:
        self._found: list[_T] = []
        self._thread = threading.Thread(target=lambda: self._found.append(ask()))
        self._thread.start()

    def result(self) -> _T:
        """The answer, once it is there. `ask` never raises."""
        self._thread.join()
        return self._found[0]


def _embedded() -> EmbeddedFacts:
    specs = {name: importlib.util.find_spec(name) for name in _EMBEDDED_MODULES}
    missing = tuple(name for name, spec in specs.items() if spec is None)
    return EmbeddedFacts(server_version=_version_of(specs["xllamacpp"]), missing=missing)


def _version_of(module: ModuleSpec | None) -> str | None:
    """The version of the package that `module` was installed from, None without one.

    It is in the name of the folder beside it (packaging.python.org, "Recording installed
    projects"). importlib.metadata would tell it too; its import is a tenth of what `plan` takes.
    """
    if module is None or module.origin is None:
        return None
    beside = Path(module.origin).parent.parent
    found = [path.name for path in beside.glob(f"{module.name}-*.dist-info")]
    return found[0].removesuffix(".dist-info").partition("-")[2] if found else None


def _running_stacks() -> tuple[RunningStack, ...]:
    from zluda_stack.engines.docker import state as docker
    from zluda_stack.engines.embedded import state as embedded

    root = paths.stacks()
    return embedded.running_stacks(root) + docker.running_stacks(root)


def _claimed() -> tuple[RunningStack, ...]:
    from zluda_stack.engines import claims

    return claims.claimed()


def _in_use(listening: tuple[int, ...], claimed: tuple[RunningStack, ...]) -> tuple[int, ...]:
    """The ports that are listened on or, for a stack that is being started, soon will be."""
    return tuple(sorted({*listening, *(one.port for one in claimed)}))


def _models_ready() -> tuple[str, ...]:
    from zluda_stack.files import children
    from zluda_stack.models.layout import Layout, is_name

    at = Layout(paths.model_store())
    try:
        names = sorted(path.stem for path in children(at.names) if path.suffix == ".json")
        records = {name: at.record(name) for name in names if is_name(name)}
        return tuple(
            name
            for name, record in records.items()
            if record is not None and at.is_whole(name, record)
        )
    except OSError:  # a store that may not be read has nothing for this user
        return ()


def _local_model(path: Path) -> LocalModelFacts:
    from zluda_stack.models.gguf_header import read_header

    return read_header(path)
