"""Which cards the KFD topology names, and what DRM and PCI add to each of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.fake_host import CPU, RX_7900_XTX, FakeHost, denied
from zluda_stack.host import pci
from zluda_stack.host.facts import GpuFacts
from zluda_stack.host.kfd import gfx_name, pci_address, read_topology
from zluda_stack.host.names import Names

GIB = 2**30
NODES = "sys/class/kfd/kfd/topology/nodes"
CARD = "0000:86:00.0"
AMD = 0x1002
PCI_IDS = """\
# a comment
1002  Advanced Micro Devices, Inc. [AMD/ATI]
\t164e  Raphael
\t744c  Navi 31 [Radeon RX 7900 XT/7900 XTX]
\t\t1da2 e471  NITRO+ RX 7900 XTX Vapor-X
10de  NVIDIA Corporation
\t13c0  GM204 [GeForce GTX 980]
\t744c  Not a Radeon
"""
AMDGPU_IDS = """\
# List of AMDGPU IDs
1.0.0
744C,\tC8,\tAMD Radeon RX 7900 XTX
744C,\tCC,\tAMD Radeon RX 7900 XT
"""


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def gpus(host: FakeHost) -> tuple[GpuFacts, ...]:
    return read_topology(host.root, Names(host.root)).gpus


def with_card(host: FakeHost, **files: object) -> FakeHost:
    """An RX 7900 XTX as KFD, DRM and PCI know it together."""
    host.with_node(1, RX_7900_XTX, vram_bytes=24 * GIB).with_render_node(128, pci=CARD)
    return host.with_pci(CARD, AMD, 0x744C, driver="amdgpu", **files)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (110000, "gfx1100"),
        (90010, "gfx90a"),
        (90402, "gfx942"),
        (110501, "gfx1151"),
        (120001, "gfx1201"),
        (100306, "gfx1036"),
        (80003, "gfx803"),
        (90012, "gfx90c"),
    ],
)
def test_the_kernels_target_version_becomes_the_compilers_name(version: int, name: str) -> None:
    assert gfx_name(version) == name


def test_location_id_becomes_a_pci_address() -> None:
    assert pci_address(34304, 0) == CARD
    assert pci_address(0x030A, 1) == "0001:03:01.2"
    assert pci_address(3 << 28 | 34304, 0) == CARD, "the number of a partition is no bus"


def test_a_radeon_card_is_read_from_the_topology(host: FakeHost) -> None:
    host.with_node(0, CPU).with_node(1, RX_7900_XTX, vram_bytes=24 * GIB)
    host.with_kfd().with_render_node(128, gtt_bytes=32 * GIB)
    (gpu,) = gpus(host)
    assert (gpu.kfd_node, gpu.gfx_target, gpu.pci) == (1, "gfx1100", CARD)
    assert gpu.render_node == "/dev/dri/renderD128"
    assert (gpu.vram_bytes, gpu.gtt_bytes) == (24 * GIB, 32 * GIB)
    assert gpu.unique_id == f"GPU-{11673270660693242239:016x}"


def test_nodes_are_in_the_order_of_their_numbers(host: FakeHost) -> None:
    for number in (10, 2, 9, 1, 11):
        host.with_node(number, RX_7900_XTX)
    assert [gpu.kfd_node for gpu in gpus(host)] == [1, 2, 9, 10, 11]


def test_what_is_not_a_node_is_not_read_as_one(host: FakeHost) -> None:
    host.with_node(3, RX_7900_XTX)
    for name in ("03", "²", "-1", "1.0", "9" * 200):
        host.write(f"{NODES}/{name}/properties", "simd_count 192\ngfx_target_version 110000\n")
    assert [gpu.kfd_node for gpu in gpus(host)] == [3]


def test_an_old_kernel_without_target_version_gives_a_gpu_without_target(host: FakeHost) -> None:
    old = {key: value for key, value in RX_7900_XTX.items() if key != "gfx_target_version"}
    host.with_node(1, old)
    assert [gpu.gfx_target for gpu in gpus(host)] == [None]


def test_a_node_of_garbage_does_not_hide_the_others(host: FakeHost) -> None:
    host.write(f"{NODES}/1/properties", b"\xff\xfe simd_count\nsimd_count many\nsimd_count 1 2\n")
    host.write(f"{NODES}/2/properties", "simd_count ²\nsimd_count -1\nsimd_count " + "9" * 5000)
    host.with_node(3, RX_7900_XTX)
    assert [gpu.kfd_node for gpu in gpus(host)] == [3]


def test_nodes_that_the_device_cgroup_hides_are_counted(host: FakeHost) -> None:
    host.with_node(0, CPU).with_node(1, RX_7900_XTX).with_node(2, RX_7900_XTX)
    with denied(host.root / NODES / "1/properties"):
        topology = read_topology(host.root, Names(host.root))
    assert [gpu.kfd_node for gpu in topology.gpus] == [2]
    assert topology.hidden == 1


@pytest.mark.parametrize("in_its_place", ["pipe", "folder", "loop"])
def test_what_is_no_file_is_passed_over_and_not_waited_for(
    host: FakeHost, in_its_place: str
) -> None:
    host.with_node(1, RX_7900_XTX).with_node(2, RX_7900_XTX)
    properties = host.root / NODES / "1/properties"
    properties.unlink()
    if in_its_place == "pipe":
        os.mkfifo(properties)
    elif in_its_place == "folder":
        properties.mkdir()
    else:
        properties.symlink_to("properties")
    assert [gpu.kfd_node for gpu in gpus(host)] == [2]


def test_a_render_node_that_does_not_exist_is_not_claimed(host: FakeHost) -> None:
    host.with_node(1, RX_7900_XTX)
    assert [gpu.render_node for gpu in gpus(host)] == [None]


def test_the_render_node_of_another_card_is_not_claimed(host: FakeHost) -> None:
    host.with_node(1, RX_7900_XTX).with_pci("0000:03:00.0", AMD, 0x164E)
    host.with_render_node(128, pci="0000:03:00.0")
    assert [gpu.render_node for gpu in gpus(host)] == [None]


def test_the_driver_tells_memory_and_its_use(host: FakeHost) -> None:
    with_card(
        host,
        mem_info_vram_total=24 * GIB,
        mem_info_vram_used=3 * GIB,
        mem_info_gtt_total=62 * GIB,
    )
    (gpu,) = gpus(host)
    assert (gpu.vram_bytes, gpu.vram_used_bytes, gpu.gtt_bytes) == (24 * GIB, 3 * GIB, 62 * GIB)
    assert gpu.render_node == "/dev/dri/renderD128"
    assert gpu.integrated is None


def test_memory_is_told_without_a_render_node(host: FakeHost) -> None:
    host.with_node(1, RX_7900_XTX).with_pci(CARD, AMD, 0x744C, mem_info_vram_total=24 * GIB)
    assert [(gpu.vram_bytes, gpu.render_node) for gpu in gpus(host)] == [(24 * GIB, None)]


def test_the_carve_out_of_an_integrated_gpu_is_not_taken_for_its_gtt(host: FakeHost) -> None:
    """Kernels since 2024 give the GTT as KFD's memory bank of such a GPU."""
    host.with_node(1, RX_7900_XTX, vram_bytes=120 * GIB)
    host.with_pci(CARD, AMD, 0x1586, mem_info_vram_total=GIB // 2, mem_info_gtt_total=120 * GIB)
    (gpu,) = gpus(host)
    assert (gpu.vram_bytes, gpu.gtt_bytes, gpu.integrated) == (GIB // 2, 120 * GIB, True)


def test_a_driver_that_tells_no_memory_yet_makes_no_card_empty(host: FakeHost) -> None:
    host.with_node(1, RX_7900_XTX, vram_bytes=24 * GIB)
    host.with_pci(CARD, AMD, 0x744C, mem_info_vram_total=0, mem_info_gtt_total=0)
    (gpu,) = gpus(host)
    assert (gpu.vram_bytes, gpu.gtt_bytes, gpu.integrated) == (24 * GIB, None, None)


def test_a_partition_has_its_own_share_of_the_card(host: FakeHost) -> None:
    host.with_node(1, RX_7900_XTX, vram_bytes=24 * GIB)
    host.with_pci(CARD, AMD, 0x74A1, mem_info_vram_total=192 * GIB)
    assert [(gpu.vram_bytes, gpu.integrated) for gpu in gpus(host)] == [(24 * GIB, None)]


def test_a_node_with_processor_cores_is_integrated(host: FakeHost) -> None:
    host.with_node(0, RX_7900_XTX | {"cpu_cores_count": 8})
    assert [gpu.integrated for gpu in gpus(host)] == [True]


def test_a_card_with_a_carve_out_in_the_firmware_is_integrated(host: FakeHost) -> None:
    host.with_node(1, RX_7900_XTX).with_pci(CARD, AMD, 0x1586)
    host.write(f"sys/bus/pci/devices/{CARD}/uma/carveout_options", "0: Minimum (512 MB)\n")
    assert [gpu.integrated for gpu in gpus(host)] == [True]


def test_sizes_that_no_card_has_are_not_believed(host: FakeHost) -> None:
    host.with_node(1, RX_7900_XTX | {"gfx_target_version": 2**32}, vram_bytes=2**64 - 1)
    host.with_pci(CARD, AMD, 0x744C, mem_info_vram_total="-1", mem_info_gtt_total="9" * 30)
    (gpu,) = gpus(host)
    assert (gpu.gfx_target, gpu.vram_bytes, gpu.gtt_bytes) == (None, None, None)


def test_revisions_tell_cards_of_one_device_id_apart(host: FakeHost) -> None:
    with_card(host, revision="0xc8")
    host.write("usr/share/misc/pci.ids", PCI_IDS)
    host.write("usr/share/libdrm/amdgpu.ids", AMDGPU_IDS)
    assert [gpu.name for gpu in gpus(host)] == ["AMD Radeon RX 7900 XTX"]


@pytest.mark.parametrize("folder", ["usr/share/misc", "usr/share/hwdata"])
def test_the_pci_id_list_tells_what_a_chip_is_sold_as(host: FakeHost, folder: str) -> None:
    with_card(host, revision="0xc8").write(f"{folder}/pci.ids", PCI_IDS)
    assert [gpu.name for gpu in gpus(host)] == ["Radeon RX 7900 XT/7900 XTX"]


def test_the_drivers_own_name_comes_first(host: FakeHost) -> None:
    with_card(host, product_name="AMD Instinct MI210").write("usr/share/misc/pci.ids", PCI_IDS)
    assert [gpu.name for gpu in gpus(host)] == ["AMD Instinct MI210"]


def test_without_lists_there_is_no_name(host: FakeHost) -> None:
    assert [gpu.name for gpu in gpus(with_card(host))] == [None]


def test_displays_of_every_vendor_are_listed_with_their_drivers(host: FakeHost) -> None:
    host.with_pci(CARD, AMD, 0x744C, driver="vfio-pci")
    host.with_pci("0000:01:00.0", 0x10DE, 0x13C0, driver="nvidia")
    host.with_pci("0000:02:00.0", 0x1AF4, 0x1000, **{"class": "0x020000"})
    host.with_pci("0000:e3:00.0", AMD, 0x74A1, **{"class": "0x120000"})
    host.write("usr/share/misc/pci.ids", PCI_IDS)
    found = pci.displays(host.root, Names(host.root))
    assert [(one.address, one.driver, one.name) for one in found] == [
        ("0000:01:00.0", "nvidia", "GeForce GTX 980"),
        (CARD, "vfio-pci", "Radeon RX 7900 XT/7900 XTX"),
        ("0000:e3:00.0", None, None),
    ]
