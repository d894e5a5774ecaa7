"""Host facts as a file: saved by `doctor --capture`, replayed by --host-facts."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import structs

from zluda_stack.files import write_atomic
from zluda_stack.host.facts import HostFacts


def without_personal_details(facts: HostFacts, home: Path) -> HostFacts:
    """The same facts, fit for a bug report: no unique ids, and ~ for the home folder."""
    model = facts.local_model
    if model is not None:
        model = structs.replace(model, path=model.path.replace(str(home), "~"), name=None)
    docker = facts.docker
    if docker.problem is not None:
        docker = structs.replace(docker, problem=docker.problem.replace(str(home), "~"))
    return structs.replace(
        facts,
        gpus=tuple(structs.replace(gpu, unique_id=None) for gpu in facts.gpus),
        docker=docker,
        local_model=model,
    )


def save(facts: HostFacts, path: Path) -> None:
    """Write `facts` to `path` as indented JSON with sorted keys. Raises HostProblem."""
    raw = msgspec.json.format(msgspec.json.encode(facts, order="sorted"), indent=2)
    write_atomic(path, raw + b"\n")
