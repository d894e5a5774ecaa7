"""The probe reads what the machine shows, and nothing it cannot read becomes a guess."""

from __future__ import annotations

import importlib.metadata
import json
import os
from pathlib import Path

import pytest

from tests.unit.fake_host import CPU, RX_7900_XTX, FakeHost
from zluda_stack.host.cdi import read_cdi
from zluda_stack.host.facts import HostFacts, SecurityFacts
from zluda_stack.host.probe import probe
from zluda_stack.host.reading import free_bytes
from zluda_stack.host.user import read_user

NOTHING = {"PATH": ""}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    for kind in ("STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    return FakeHost(tmp_path / "root")


def facts_of(host: FakeHost, **environ: str) -> HostFacts:
    return probe(None, NOTHING | environ, host.root)


def test_owners_and_modes_are_those_that_stat_shows(host: FakeHost) -> None:
    host.with_kfd().with_render_node(128, pci="0000:86:00.0").with_pci("0000:86:00.0", 0x1002, 1)
    (host.root / "dev/kfd").chmod(0o660)
    if os.geteuid() == 0:
        os.chown(host.root / "dev/kfd", -1, 148)
    facts = facts_of(host)
    shown = (host.root / "dev/kfd").stat()
    assert facts.kfd is not None
    assert (facts.kfd.uid, facts.kfd.gid, facts.kfd.mode) == (shown.st_uid, shown.st_gid, 0o660)
    assert facts.kfd.accessible
    assert [(node.path, node.vendor, node.pci) for node in facts.render_nodes] == [
        ("/dev/dri/renderD128", 0x1002, "0000:86:00.0")
    ]


def test_an_access_control_list_is_noticed(host: FakeHost) -> None:
    host.with_kfd()
    # Version 2, then tag, permissions and id of each entry, after linux/posix_acl_xattr.h.
    entries = ((1, 6, -1), (2, 6, 1000), (4, 0, -1), (16, 6, -1), (32, 0, -1))
    packed = b"".join(
        tag.to_bytes(2, "little") + mode.to_bytes(2, "little") + (who % 2**32).to_bytes(4, "little")
        for tag, mode, who in entries
    )
    before = facts_of(host).kfd
    try:
        os.setxattr(host.root / "dev/kfd", "system.posix_acl_access", b"\2\0\0\0" + packed)
    except OSError as error:
        pytest.skip(f"this file system keeps no access control lists: {error.strerror}")
    after = facts_of(host).kfd
    assert before is not None
    assert after is not None
    assert (before.acl, after.acl) == (False, True)


def test_render_nodes_are_in_the_order_of_their_numbers(host: FakeHost) -> None:
    host.write("dev/dri/renderDX", "").write("dev/dri/card0", "")
    for minor in (1000, 128, 129):
        host.with_render_node(minor)
    paths = [node.path for node in facts_of(host).render_nodes]
    assert paths == [f"/dev/dri/renderD{minor}" for minor in (128, 129, 1000)]


def test_only_listening_ports_are_busy(host: FakeHost) -> None:
    host.with_listeners(8080, 9000)
    assert facts_of(host).listening_ports == (8080, 9000)


def test_a_damaged_table_of_connections_frees_no_port(host: FakeHost) -> None:
    host.with_listeners(8080)
    table = host.root / "proc/net/tcp"
    table.write_bytes(b"\xff\n" + table.read_bytes() + b"  10: 0100007F\n  11:\n")
    assert facts_of(host).listening_ports == (8080,)


def test_only_gpu_variables_of_the_environment_are_kept(host: FakeHost) -> None:
    facts = facts_of(host, HSA_OVERRIDE_GFX_VERSION="", AWS_SECRET_ACCESS_KEY="hush")
    assert facts.environment == {"HSA_OVERRIDE_GFX_VERSION": ""}


def test_proxies_and_bundles_are_named_without_their_values(host: FakeHost) -> None:
    facts = facts_of(host, https_proxy="http://me:hush@proxy", HTTP_PROXY="", SSL_CERT_FILE="/ca")
    assert facts.network.proxy_variables == ("https_proxy",)
    assert facts.network.ca_variables == ("SSL_CERT_FILE",)
    assert "hush" not in repr(facts)


def test_an_empty_machine_gives_absent_facts_and_no_error(host: FakeHost) -> None:
    facts = facts_of(host)
    assert (facts.kfd, facts.dri_exists, facts.gpus, facts.memory_bytes) == (None, False, (), None)
    assert (facts.driver.loaded, facts.distribution, facts.container) == (False, None, None)
    assert facts.security == SecurityFacts()
    assert facts.docker.client_version is None
    assert (facts.podman, facts.stack) == (None, None)


def test_memory_is_in_bytes(host: FakeHost) -> None:
    host.write(
        "proc/meminfo", "MemTotal:       65853904 kB\nMemAvailable:    1024 kB\nMemFree: x\n"
    )
    facts = facts_of(host)
    assert (facts.memory_bytes, facts.memory_available_bytes) == (65853904 * 1024, 1024**2)


def test_free_room_is_that_of_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "not/made/yet") == free_bytes(tmp_path)
    assert free_bytes(tmp_path) is not None


def test_the_driver_is_told_with_its_version_where_it_has_one(host: FakeHost) -> None:
    host.write("sys/module/amdgpu/version", "6.12.12\n")
    host.write("opt/rocm/.info/version", "7.2.1-81\n")
    facts = facts_of(host)
    assert (facts.driver.loaded, facts.driver.version) == (True, "6.12.12")
    assert facts.rocm_version == "7.2.1-81"


def test_only_kernel_options_of_graphics_and_iommu_are_kept(host: FakeHost) -> None:
    told = "nomodeset amdgpu.gttsize=131072 iommu=pt amd_iommu=off pci=realloc ttm.pages_limit=1"
    dropped = "BOOT_IMAGE=/vmlinuz root=UUID=1234 quiet ip=10.0.0.5 modprobe.blacklist=nouveau"
    blacklist = "modprobe.blacklist=nouveau,amdgpu module_blacklist=amdgpu"
    host.write("proc/cmdline", f"{dropped} {told} {blacklist}\n")
    assert facts_of(host).kernel_options == tuple(f"{told} {blacklist}".split())


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('PRETTY_NAME="Ubuntu 24.04.3 LTS"', "Ubuntu 24.04.3 LTS"),
        ("PRETTY_NAME=Arch", "Arch"),
        ('PRETTY_NAME="no end', None),
        ('PRETTY_NAME=""', None),
        ('PRETTY_NAME="\x1b[31mred"', None),
    ],
)
def test_the_distribution_is_named(host: FakeHost, line: str, name: str | None) -> None:
    host.write("etc/os-release", f"ID=x\n{line}\n")
    assert facts_of(host).distribution == name


@pytest.mark.parametrize(
    ("file", "content", "kind"),
    [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", "", "podman"),
        ("run/systemd/container", "lxc\n", "lxc"),
        ("run/systemd/container", "wsl\n", None),
    ],
)
def test_the_kind_of_container_is_told(
    host: FakeHost, file: str, content: str, kind: str | None
) -> None:
    assert facts_of(host.write(file, content)).container == kind


def test_a_pod_of_kubernetes_is_a_container(host: FakeHost) -> None:
    assert facts_of(host, KUBERNETES_SERVICE_HOST="10.0.0.1").container == "kubernetes"


def test_wsl_is_known_by_its_device(host: FakeHost) -> None:
    facts = facts_of(host.write("dev/dxg", ""))
    assert facts.wsl
    assert facts.dxg is not None
    assert facts.dxg.path == "/dev/dxg"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"fs/selinux/enforce": "1", "fs/selinux/booleans/container_use_devices": "0 0"},
            SecurityFacts(selinux="enforcing", container_devices=False),
        ),
        (
            {"fs/selinux/enforce": "0", "fs/selinux/booleans/container_use_devices": "1 1"},
            SecurityFacts(selinux="permissive", container_devices=True),
        ),
        (
            {
                "kernel/security/lsm": "capability,apparmor",
                "module/apparmor/parameters/enabled": "Y",
            },
            SecurityFacts(selinux="disabled", apparmor=True),
        ),
        ({"kernel/security/lsm": "capability,selinux"}, SecurityFacts()),
    ],
)
def test_what_the_kernel_enforces(
    host: FakeHost, files: dict[str, str], expected: SecurityFacts
) -> None:
    for path, content in files.items():
        host.write(f"sys/{path}", f"{content}\n")
    assert facts_of(host).security == expected


def test_groups_of_a_session_and_of_the_files_are_told_apart(host: FakeHost) -> None:
    host.write(
        "etc/passwd", f"other:x:4242:1::/:/bin/sh\nme:x:{os.getuid()}:70::/home/me:/bin/sh\n"
    )
    host.write(
        "etc/group",
        "render:x:992:you,me\nvideo:x:44:you\ndocker:x:many:me\nwheel:x:998:me\nbroken\n",
    )
    user = read_user(host.root)
    assert user.configured_gids == (70, 992, 998)
    assert user.groups == {"render": 992, "video": 44}
    assert os.getegid() in user.gids
    assert user.root == (os.geteuid() == 0)


def _spec(**changes: object) -> dict[str, object]:
    """What amd-ctk writes for one card."""
    nodes = [{"path": "/dev/dri/renderD128"}, {"path": "/dev/kfd", "hostPath": "/dev/kfd"}]
    card = {"name": "0", "containerEdits": {"deviceNodes": nodes}}
    return {"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": [card]} | changes


def test_cdi_devices_are_listed_with_what_they_pass(host: FakeHost) -> None:
    host.write("etc/cdi/amd.json", json.dumps(_spec()))
    host.write("etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\ndevices: [{name: '0'}]\n")
    host.write(
        "var/run/cdi/amd.yaml",
        "kind: amd.com/gpu\ndevices:\n- name: all\n"
        "containerEdits: {deviceNodes: [{path: /dev/kfd}]}\n",
    )
    assert [(spec.path, spec.nodes) for spec in read_cdi(host.root)] == [
        ("/etc/cdi/amd.json", {"0": ("/dev/dri/renderD128", "/dev/kfd")}),
        ("/var/run/cdi/amd.yaml", {"all": ("/dev/kfd",)}),
    ]


@pytest.mark.parametrize(
    "damaged",
    [
        '{"kind": "amd.com/gpu", "devices": [',
        json.dumps(_spec(devices="all")),
        json.dumps(_spec(devices=[{"name": 0}])),
        json.dumps(_spec(kind="amd.com/gpu-old")),
        json.dumps(_spec(annotations={"padding": "x" * 200_000})),
        '{"kind": "amd.com/gpu", "devices": ' + "[" * 50_000,
    ],
)
def test_damaged_cdi_specifications_are_passed_over(host: FakeHost, damaged: str) -> None:
    host.write("etc/cdi/bad.json", damaged).write("etc/cdi/good.json", json.dumps(_spec()))
    assert [spec.path for spec in read_cdi(host.root)] == ["/etc/cdi/good.json"]


@pytest.mark.parametrize(
    "damaged",
    [
        *("kind: amd.com/gpu\ndevices: !!timestamp x", "kind: amd.com/gpu\ndevices: !!bool x"),
        *("kind: amd.com/gpu\ndevices: !!float ''", "kind: amd.com/gpu\n? [a]\n: b", "amd.com/gpu"),
        *("kind: amd.com/gpu\ndevices: " + "[" * 5000, "kind: amd.com/gpu\na: &a [*a]\n\tb: c"),
    ],
)
def test_damaged_yaml_is_passed_over_too(host: FakeHost, damaged: str) -> None:
    assert read_cdi(host.write("etc/cdi/bad.yaml", damaged).root) == ()


def test_the_embedded_server_is_told_with_the_version_of_its_package(host: FakeHost) -> None:
    pytest.importorskip("xllamacpp")
    told = facts_of(host).embedded.server_version
    assert told == importlib.metadata.version("xllamacpp")


def test_a_machine_with_everything_is_read_in_one_go(host: FakeHost) -> None:
    host.with_node(0, CPU).with_node(1, RX_7900_XTX).with_kfd().with_render_node(128)
    host.with_pci("0000:86:00.0", 0x1002, 0x744C, driver="amdgpu")
    facts = facts_of(host)
    assert [gpu.render_node for gpu in facts.gpus] == ["/dev/dri/renderD128"]
    assert [display.driver for display in facts.pci_displays] == ["amdgpu"]
    assert facts.hidden_nodes == 0
