"""Stacks on cards that are not here: fake device nodes, images around a fake server that answers.

The engine, ROCm, the endpoint and all that is rendered are real. What is shown counts as tested
with a fake.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from tests.docker_engine import build
from tests.e2e.conftest import free_port
from tests.unit.fetched import CONTENT
from tests.unit.planning import card, machine, plan_for
from zluda_stack.host.facts import LocalModelFacts
from zluda_stack.plan.profiles import traits
from zluda_stack.plan.types import ImagePlan, Plan

HERE = Path(__file__).parent
GID = 148
# The fixtures of tests/images/conftest.py that have what the images are built in.
CONTEXTS = {
    "translated": "inference_contexts",
    "native": "native_contexts",
    "webui": "webui_contexts",
}
TARGETS = {"translated": "gfx1100", "native": "gfx90a", "webui": "gfx1100"}
_CONTAINERFILE = """\
FROM {tag} AS made
RUN apt-get update && apt-get install --yes --no-install-recommends python3
COPY files /
"""


def with_program(tag: str, scratch: Path, files: Mapping[str, Path]) -> str:
    """The image `tag` with Python, the fakes of the server and of rocprofv3, and `files`.

    `files` are by their paths in it.
    """
    fakes = {
        "opt/llama/llama-server": HERE / "fake_program.py",
        "usr/bin/rocprofv3": HERE / "fake_rocprofv3.py",
    }
    scratch.mkdir(exist_ok=True)
    for name, source in (fakes | dict(files)).items():
        target = scratch / "files" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        target.chmod(0o755)
    (scratch / "Dockerfile").write_text(_CONTAINERFILE.format(tag=tag))
    made = f"{tag}-program"
    return build(scratch / "Dockerfile", target="made", tag=made, contexts={}, context=scratch)


def device_nodes(folder: Path, cards: int) -> Path:
    """The / of a host with so many cards: /dev/fuse by other names, for the group GID alone."""
    for name in ("kfd", *(f"dri/renderD{128 + number}" for number in range(cards))):
        node = folder / "host/dev" / name
        node.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(node, stat.S_IFCHR, Path("/dev/fuse").stat().st_rdev)
        os.chown(node, 0, GID)
        node.chmod(0o660)
    return folder / "host"


def plan_on_cards(
    profile: str, contexts: Mapping[str, str], folder: Path, cards: int = 1, **wishes: object
) -> Plan:
    """The plan of a stack on Debian's ROCm whose images are built in `contexts`.

    A user's own image of the same name is not touched.
    """
    model = folder / "fake.gguf"
    model.write_bytes(CONTENT)
    known = LocalModelFacts(path=str(model), size=len(CONTENT), architecture="llama")
    gpus = (card(TARGETS[profile], number, gib=64) for number in range(cards))
    named = {"name": f"test-{secrets.token_hex(4)}", "port": free_port(), "gpu": "all"}
    served = {"model": str(model), "context": 1024, "accept_cuda_eula": True}
    zluda = {"zluda": "path", "zluda_path": "/given"} if traits(profile).translates else {}  # type: ignore[arg-type]
    made = plan_for(
        machine(*gpus, gid=GID, local_model=known),
        **{"profile": profile, "variant": "debian", **named, **served, **zluda, **wishes},
    )

    def here(image: ImagePlan) -> ImagePlan:
        packages = image.variant.packages | {"profiler": ("python3",)}
        return structs.replace(
            image,
            variant=structs.replace(image.variant, packages=packages),
            contexts=dict(contexts),
            tag=_own(image.name),
            compose_tag=None,
        )

    return structs.replace(
        made,
        images=tuple(map(here, made.images)),
        services=tuple(structs.replace(one, image=_own(one.build or "")) for one in made.services),
        host_environment=made.host_environment | {"HOST_ROOT": str(device_nodes(folder, cards))},
    )


def _own(image: str) -> str:
    return f"zluda-stack-test/{image}:stand-in"
