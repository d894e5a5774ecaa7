"""Each replica of a rendered stack opens its own card as a plain user, and sees no other one.

On a real engine with fake device nodes, in a bare Debian: it is the engine that is asked here.
"""

from __future__ import annotations

import os
import secrets
import stat
import subprocess
from pathlib import Path

import pytest
import yaml
from msgspec import structs

from tests.unit.planning import card, machine, plan_for
from zluda_stack.host.facts import DeviceNode
from zluda_stack.render.project import render_project, write_project

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

KFD_GID, RENDER_GID = 148, 993
# What Docker lets no container open unless it is passed.
NUMBER = Path("/dev/fuse")
LOOK = "id -u; ls /dev/dri; for node in /dev/kfd /dev/dri/*; do : <>$node && echo opened; done"


@pytest.fixture
def three_cards(tmp_path: Path) -> Path:
    """The / of a host with three cards, whose nodes belong to groups that no image knows."""
    if not NUMBER.exists() or os.getuid() != 0:
        pytest.skip("NO DEVICE NODES: only root makes them, after the model of /dev/fuse")
    root = tmp_path / "host"
    nodes = {"dev/kfd": KFD_GID} | {f"dev/dri/renderD{128 + n}": RENDER_GID for n in range(3)}
    for name, gid in nodes.items():
        node = root / name
        node.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(node, stat.S_IFCHR, NUMBER.stat().st_rdev)
        os.chown(node, 0, gid)
        node.chmod(0o660)
    return root


@pytest.fixture
def project(three_cards: Path, standin: str, tmp_path: Path) -> Path:
    """The compose file of a stack on the second and the first card, run by the bare Debian."""
    cards = machine(*(card("gfx1100", number) for number in range(3)), gid=RENDER_GID)
    kfd = DeviceNode(path="/dev/kfd", gid=KFD_GID, accessible=True)
    files = render_project(plan_for(structs.replace(cards, kfd=kfd), gpu="1,0"))
    write_project(files, tmp_path / "stack")
    compose = tmp_path / "stack/compose"
    with (compose / ".env").open("a") as env:
        env.write(f"HOST_ROOT={three_cards}\nZLUDA_STACK_API_KEY_HASHES_FILE=./none\n")
    user = {"image": standin, "user": "10001:10001", "entrypoint": ["bash", "-c"]}
    over = {"services": {"inference": user, "inference-2": user}}
    (compose / "over.yml").write_text(yaml.safe_dump(over))
    return compose


def looks(project: Path, service: str) -> list[str]:
    """What a container of `service` finds under /dev."""
    name = f"zluda-stack-test-{secrets.token_hex(4)}"
    files = ("--file", str(project / "inference.yml"), "--file", str(project / "over.yml"))
    stack = ("docker", "compose", "--project-name", name, *files)
    try:
        told = subprocess.run(
            [*stack, "run", "--rm", "--no-deps", service, LOOK],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        subprocess.run([*stack, "down", "--volumes"], capture_output=True, check=True)
    assert told.returncode == 0, told.stderr
    return told.stdout.split()


def test_each_replica_opens_its_own_card_and_sees_no_other(project: Path) -> None:
    assert looks(project, "inference") == ["10001", "renderD129", "opened", "opened"]
    assert looks(project, "inference-2") == ["10001", "renderD128", "opened", "opened"]


def test_without_the_gid_of_its_node_a_container_opens_nothing(project: Path) -> None:
    env = project / ".env"
    env.write_text(env.read_text().replace(f"HOST_RENDER_GID={RENDER_GID}\n", ""))
    with pytest.raises(AssertionError, match="Permission denied"):
        looks(project, "inference")
