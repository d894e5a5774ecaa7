"""A thousand damaged machines: the probe answers for each, in time, and names no wrong card."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.fake_host import CPU, RX_7900_XTX, FakeHost, denied
from zluda_stack.host.facts import EmbeddedFacts, GpuFacts, HostFacts
from zluda_stack.host.kfd import gfx_name, pci_address
from zluda_stack.host.probe import probe

GIB = 2**30
NODES = "sys/class/kfd/kfd/topology/nodes"
SECONDS = 2
CARDS = {
    # node: PCI bus, render minor, version of the target, device id
    1: (0x0C, 128, 100306, 0x164E),
    2: (0x03, 129, 110000, 0x744C),
    10: (0x86, 130, 120001, 0x7550),
}


def healthy(root: Path) -> None:
    """A machine with an integrated and two discrete cards, and everything that the probe reads."""
    host = FakeHost(root).with_kfd().with_node(0, CPU).with_listeners(8080)
    for node, (bus, minor, version, device) in CARDS.items():
        address = pci_address(bus << 8, 0)
        told = {"gfx_target_version": version, "location_id": bus << 8, "device_id": device}
        host.with_node(
            node, RX_7900_XTX | told | {"drm_render_minor": minor}, vram_bytes=minor * GIB
        )
        host.with_render_node(minor, pci=address)
        memory = {"mem_info_vram_total": minor * GIB, "mem_info_gtt_total": 2 * minor * GIB}
        host.with_pci(address, 0x1002, device, "amdgpu", revision="0xc8", **memory)
    host.write("usr/share/misc/pci.ids", "1002  AMD\n\t744c  Navi 31 [Radeon RX 7900 XTX]\n")
    host.write("usr/share/libdrm/amdgpu.ids", "164E,\tC8,\tAMD Radeon Graphics\n")
    host.write("proc/meminfo", "MemTotal: 65853904 kB\nMemAvailable: 4096 kB\n")
    host.write("proc/cmdline", "quiet nomodeset amdgpu.gttsize=1\n")
    host.write("etc/os-release", 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\n')
    host.write("etc/passwd", f"me:x:{os.getuid()}:1000::/home/me:/bin/sh\n")
    host.write("etc/group", "render:x:992:me\nvideo:x:44:me\n")
    host.write("etc/cdi/amd.json", '{"kind": "amd.com/gpu", "devices": [{"name": "0"}]}')
    host.write("etc/cdi/amd.yaml", "kind: amd.com/gpu\ndevices: [{name: '1'}]\n")
    host.write("sys/fs/selinux/enforce", "1").write("sys/kernel/security/lsm", "selinux")
    host.write("sys/fs/selinux/booleans/container_use_devices", "0 0")
    host.write("sys/module/amdgpu/version", "6.12.12").write("opt/rocm/.info/version", "7.2.1")


@dataclass(frozen=True, repr=False)
class Machine:
    """The healthy tree, every path in it, and where parts of it wait while others stand in."""

    root: Path
    aside: Path
    paths: tuple[str, ...]
    facts: HostFacts


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    memory = Path("/dev/shm")  # noqa: S108 -- a thousand trees are kept off the disk
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        for kind in ("STATE", "DATA"):
            patch.setenv(f"XDG_{kind}_HOME", f"{folder}/{kind.lower()}")
        # What is installed beside this program is no part of the tree, and takes long to look up.
        patch.setattr("zluda_stack.host.probe._embedded", EmbeddedFacts)
        root, aside = Path(folder, "root"), Path(folder, "aside")
        aside.mkdir()
        healthy(root)
        paths = tuple(sorted(str(path.relative_to(root)) for path in root.rglob("*")))
        yield Machine(root, aside, paths, probe(None, {"PATH": ""}, root))


NUMBERS = st.sampled_from(
    ["-1", "0", "1", "4294967296", str(2**64 - 1), "9" * 20, "9" * 30, "²", "1e9", ""]
)
CONTENTS = st.one_of(
    st.binary(max_size=64),
    st.just(b""),
    st.sampled_from([b"9", b"\0", b"simd_count 7\n", b"\xff\n", b"[", b"  10: "]).map(
        lambda part: part * (3_000_000 // len(part))
    ),
)
DAMAGE = st.one_of(
    st.tuples(st.sampled_from(["gone", "denied", "folder", "pipe", "loop"]), st.none()),
    st.tuples(st.just("content"), CONTENTS),
    st.tuples(st.just("numbers"), NUMBERS),
    st.tuples(st.just("cut"), st.integers(0, 400)),
    st.tuples(st.just("swapped"), st.integers(0, 9)),
)


Damage = tuple[str, object]


@contextmanager
def damaged(machine: Machine, path: str, damage: Damage) -> Iterator[None]:
    """Something else in the place of `path`; nothing where a part of the path is gone already."""
    real = machine.root / path
    if not os.path.lexists(real):
        yield
        return
    kept = Path(tempfile.mkdtemp(dir=machine.aside), "kept")
    content = real.read_bytes() if stat.S_ISREG(real.lstat().st_mode) else b""
    real.rename(kept)
    try:
        with ExitStack() as stack:
            if damage[0] == "denied":
                stack.enter_context(denied(real))
            put(real, damage, content)
            if damage[0] == "swapped":
                copy_namesake(machine, path, int(str(damage[1])))
            yield
    finally:
        if real.is_dir() and not real.is_symlink():
            shutil.rmtree(real)
        else:
            real.unlink(missing_ok=True)
        kept.rename(real)


def put(real: Path, damage: Damage, content: bytes) -> None:
    kind, value = damage
    if kind == "folder":
        real.mkdir()
    elif kind == "pipe":
        os.mkfifo(real)
    elif kind == "loop":
        real.symlink_to(real.name)
    elif kind == "denied":
        real.write_bytes(content)
    elif kind == "numbers":
        real.write_bytes(re.sub(rb"[0-9]+", str(value).encode(), content))
    elif kind == "cut":
        real.write_bytes(content[: int(str(value))])
    elif isinstance(value, bytes):
        real.write_bytes(value)


def copy_namesake(machine: Machine, path: str, choice: int) -> None:
    """What another card has under that name, in the place of `path`."""
    name = Path(path).name
    others = [one for one in machine.paths if one != path and Path(one).name == name]
    source = machine.root / others[choice % len(others)] if others else None
    if source is not None and (source.is_file() or source.is_symlink()):
        shutil.copyfile(source, machine.root / path, follow_symlinks=False)


def belongs_to(node: int) -> tuple[str, ...]:
    """The paths that the facts of the card of that node come from."""
    bus, minor, _, _ = CARDS[node]
    return (
        f"{NODES}/{node}",
        f"sys/bus/pci/devices/{pci_address(bus << 8, 0)}",
        f"sys/class/drm/renderD{minor}",
        f"dev/dri/renderD{minor}",
        "usr/share",
    )


def touches(path: str, others: tuple[str, ...]) -> bool:
    """Whether `path` is one of the others, above it or below it."""
    return any(f"{path}/".startswith(f"{one}/") or one.startswith(f"{path}/") for one in others)


def is_told(gpu: GpuFacts, root: Path) -> bool:
    """Whether the files say of this card what the facts do, as far as they name one."""
    words = (root / NODES / str(gpu.kfd_node) / "properties").read_bytes()

    def numbers(key: bytes) -> list[int]:
        return [int(number) for number in re.findall(key + rb"\s+([0-9]+)", words)]

    targets = {gfx_name(version) for version in numbers(b"gfx_target_version")} | {None}
    places = product(numbers(b"location_id"), [0, *numbers(b"domain")])
    addresses = {pci_address(*place) for place in places} | {None}
    return any(numbers(b"simd_count")) and gpu.gfx_target in targets and gpu.pci in addresses


def reaches_itself(gpu: GpuFacts, root: Path) -> bool:
    """Whether the render node is there, and is not known as another card's."""
    if gpu.render_node is None:
        return True
    link = root / "sys/class/drm" / Path(gpu.render_node).name / "device"
    behind = os.path.realpath(link).rpartition("/")[2]
    others = {pci_address(bus << 8, 0) for bus, *_ in CARDS.values()} - {gpu.pci}
    return (root / gpu.render_node.lstrip("/")).exists() and (not gpu.pci or behind not in others)


@given(data=st.data())
@settings(
    max_examples=1000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_damage_gives_fewer_facts_and_never_wrong_ones(
    machine: Machine, data: st.DataObject
) -> None:
    topology = [path for path in machine.paths if path.startswith(NODES)]
    anywhere = st.one_of(st.sampled_from(machine.paths), st.sampled_from(topology))
    parts = st.tuples(anywhere, DAMAGE)
    damages = data.draw(st.lists(parts, min_size=1, max_size=6, unique_by=lambda part: part[0]))
    with ExitStack() as stack:
        for path, damage in damages:
            stack.enter_context(damaged(machine, path, damage))
        started = time.monotonic()
        facts = probe(None, {"PATH": ""}, machine.root)
        assert time.monotonic() - started < SECONDS
        assert [gpu for gpu in facts.gpus if not is_told(gpu, machine.root)] == []
        assert [gpu for gpu in facts.gpus if not reaches_itself(gpu, machine.root)] == []
    whole = [
        gpu
        for gpu in machine.facts.gpus
        if not any(touches(path, belongs_to(gpu.kfd_node)) for path, _ in damages)
    ]
    assert [gpu for gpu in whole if gpu not in facts.gpus] == [], "damage elsewhere hides a card"
    assert msgspec.json.decode(msgspec.json.encode(facts), type=HostFacts) == facts


def test_the_healthy_machine_is_read_whole(machine: Machine) -> None:
    told = [(gpu.kfd_node, gpu.gfx_target, gpu.render_node) for gpu in machine.facts.gpus]
    assert told == [
        (node, gfx_name(version), f"/dev/dri/renderD{minor}")
        for node, (_, minor, version, _) in CARDS.items()
    ]
    assert [gpu.name for gpu in machine.facts.gpus] == [
        "AMD Radeon Graphics",
        "Radeon RX 7900 XTX",
        None,
    ]
    assert len(machine.facts.pci_displays) == len(CARDS)
    assert len(machine.facts.cdi) == 2
