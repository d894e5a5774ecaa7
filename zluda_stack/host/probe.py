"""The one probe that reads this machine into HostFacts: no ROCm, no root, bounded in time."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from zluda_stack import paths
from zluda_stack.host.docker import read_docker
from zluda_stack.host.facts import (
    DeviceNode,
    EmbeddedFacts,
    HostFacts,
    LocalModelFacts,
    RunningStack,
)
from zluda_stack.host.kfd import read_gpus

# The variables by which users steer ROCm; nothing else of the environment is a fact.
GPU_VARIABLES = (
    "HSA_OVERRIDE_GFX_VERSION",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)
_EMBEDDED_MODULES = ("xllamacpp", "uvicorn", "httpx")
_TCP_LISTEN = "0A"


def probe(model_path: Path | None, environ: Mapping[str, str], root: Path = Path("/")) -> HostFacts:
    """What is true of this machine now.

    `model_path` is the GGUF file that the settings name, if any; `root` is another tree than /
    for tests. Nothing that is missing or unreadable raises, it is absent from the facts; only
    this user's own folder of stacks must be readable, or OSError is raised.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        docker = pool.submit(read_docker, environ)
        system = platform.uname()
        running, claimed = _running_stacks(), _claimed()
        return HostFacts(
            system=system.system,
            machine=system.machine,
            kernel=system.release,
            cpu_count=os.cpu_count() or 1,
            memory_bytes=_memory_bytes(root),
            wsl=(root / "dev/dxg").exists() or "microsoft" in system.release.lower(),
            kfd=_device_node(root, "/dev/kfd"),
            dri_exists=(root / "dev/dri").is_dir(),
            render_nodes=_render_nodes(root),
            gpus=read_gpus(root),
            docker=docker.result(),
            embedded=_embedded(),
            environment={key: environ[key] for key in GPU_VARIABLES if key in environ},
            listening_ports=_in_use(_listening_ports(root), claimed),
            running=running + tuple(one for one in claimed if one not in running),
            local_model=None if model_path is None else _local_model(model_path),
        )


def _device_node(root: Path, path: str) -> DeviceNode | None:
    real = root / path.lstrip("/")
    try:
        gid = real.stat().st_gid
    except OSError:
        return None
    vendor = root / "sys/class/drm" / real.name / "device/vendor"
    return DeviceNode(
        path=path, gid=gid, accessible=os.access(real, os.R_OK | os.W_OK), vendor=_hex(vendor)
    )


def _hex(path: Path) -> int | None:
    try:
        return int(path.read_text().strip(), 16)
    except (OSError, ValueError):
        return None


def _render_nodes(root: Path) -> tuple[DeviceNode, ...]:
    names = sorted((root / "dev/dri").glob("renderD*"), key=lambda node: (len(node.name), node))
    nodes = (_device_node(root, f"/dev/dri/{node.name}") for node in names)
    return tuple(node for node in nodes if node is not None)


def _memory_bytes(root: Path) -> int | None:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kibibytes = (line.split()[1] for line in lines if line.startswith("MemTotal:"))
    return next((int(value) * 1024 for value in kibibytes), None)


def _listening_ports(root: Path) -> tuple[int, ...]:
    """TCP ports in state LISTEN, after proc_net_tcp(5); empty where there is no /proc."""
    ports: set[int] = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = (root / "proc/net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        fields = (line.split() for line in lines)
        ports.update(int(f[1].rpartition(":")[2], 16) for f in fields if f[3] == _TCP_LISTEN)
    return tuple(sorted(ports))


def _embedded() -> EmbeddedFacts:
    missing = tuple(name for name in _EMBEDDED_MODULES if importlib.util.find_spec(name) is None)
    version = None if "xllamacpp" in missing else importlib.metadata.version("xllamacpp")
    return EmbeddedFacts(server_version=version, missing=missing)


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


def _local_model(path: Path) -> LocalModelFacts:
    from zluda_stack.models.gguf_header import read_header

    return read_header(path)
