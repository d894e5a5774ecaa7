"""Host facts as a file: saved by `doctor --capture`, replayed by --host-facts."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import structs

from zluda_stack.errors import UsageError
from zluda_stack.files import write_atomic
from zluda_stack.host.facts import DockerFacts, HostFacts, UserFacts
from zluda_stack.host.redaction import Redaction, own_names

# A machine with eight cards takes 20 kB.
_MOST_BYTES = 4 << 20
_COMMON_CONTEXTS = frozenset(("default", "desktop-linux", "rootless"))


def without_personal_details(
    facts: HostFacts, home: Path, names: Mapping[str, str] | None = None
) -> HostFacts:
    """The same facts, fit for a bug report that everybody can read.

    Removed are unique ids, the names of the user and of the machine, paths under a home folder,
    other machines' addresses, the names of Docker contexts, and groups that have nothing to do
    with graphics or Docker. Findings stay what they are. `names` is what to write for each word
    that names the user or the machine; by default those of this process.
    """
    reduced = structs.replace(
        facts,
        gpus=tuple(structs.replace(gpu, unique_id=None) for gpu in facts.gpus),
        user=_relevant_groups(facts),
        docker=_without_other_machines(facts.docker),
        local_model=facts.local_model and structs.replace(facts.local_model, name=None),
    )
    return Redaction(home, own_names(home) if names is None else names).over(reduced)


def save(facts: HostFacts, path: Path) -> None:
    """Write `facts` to `path` as indented JSON with sorted keys. Raises HostProblem."""
    raw = msgspec.json.format(msgspec.json.encode(facts, order="sorted"), indent=2)
    write_atomic(path, raw + b"\n")


def load(path: Path) -> HostFacts:
    """The host that `save` wrote at `path`. Raises UsageError for a file that is none."""
    try:
        # What is no regular file, such as a pipe that nobody writes to, might never end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise _not_a_capture(path, "it is not a regular file")
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise _not_a_capture(path, f"it has more than {_MOST_BYTES >> 20} MiB")
        return msgspec.json.decode(raw, type=HostFacts)
    except OSError as error:
        raise UsageError(
            f"cannot read the host facts {path}: {error.strerror}",
            "Give the file that `zluda-stack doctor --capture FILE` wrote.",
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_a_capture(path, str(error)) from error


def _relevant_groups(facts: HostFacts) -> UserFacts:
    nodes = (facts.kfd, facts.dxg, facts.docker.socket, *facts.render_nodes)
    kept = {*facts.user.groups.values(), *(node.gid for node in nodes if node is not None)}
    return structs.replace(
        facts.user,
        gids=tuple(gid for gid in facts.user.gids if gid in kept),
        configured_gids=tuple(gid for gid in facts.user.configured_gids if gid in kept),
    )


def _without_other_machines(docker: DockerFacts) -> DockerFacts:
    """Contexts are named after machines, and an engine on one of them is complained of by name."""
    known = dict.fromkeys((*docker.contexts, *((docker.context,) if docker.context else ())))
    aliases = {
        name: name if name in _COMMON_CONTEXTS else f"context-{number}"
        for number, name in enumerate(known, 1)
    }
    silent = docker.problem is not None and docker.remote
    return structs.replace(
        docker,
        context=aliases.get(docker.context or ""),
        contexts=tuple(aliases[name] for name in docker.contexts),
        problem="the engine on another machine did not answer" if silent else docker.problem,
    )


def _not_a_capture(path: Path, reason: str) -> UsageError:
    return UsageError(
        f"{path} is not a host capture: {reason}",
        "Write a new one with `zluda-stack doctor --capture FILE`.",
    )
