"""From what a user typed to the model that is fetched."""

from __future__ import annotations

from msgspec import Struct, structs

from zluda_stack.catalog.schema import Catalog, HubModel, ModelFile
from zluda_stack.errors import HostProblem, UsageError
from zluda_stack.models.choice import choose
from zluda_stack.models.fetching import Fetching
from zluda_stack.models.layout import checked_name
from zluda_stack.models.listing import find_model
from zluda_stack.models.reference import HubPlace, WebPlace, all_parts, name_of, parse
from zluda_stack.models.store import Store, recorded
from zluda_stack.models.wanted import Described, WantedModel
from zluda_stack.progress import Progress


class Asked(Struct, frozen=True, kw_only=True):
    """What the user said of one model beside where it is."""

    text: str
    name: str | None = None
    sha256: str | None = None


def wanted(
    asked: Asked, catalog: Catalog, store: Store, fetching: Fetching, progress: Progress
) -> WantedModel:
    """The model that `asked` means: of the catalogue, the store, another store, a hub or the web.

    Asks the network for what another store or a hub has where the user left that open. Raises
    UsageError, HostProblem.
    """
    place = parse(asked.text)
    if place is None:
        return _by_name(asked, catalog, store, fetching, progress)
    if fetching.peer is not None:
        raise UsageError(
            f"{asked.text} is not the name of a model", "Another store knows its models by name."
        )
    if isinstance(place, WebPlace):
        model = _from_web(asked, place)
    else:
        model = _from_hub(asked, place, fetching, progress)
    free = asked.sha256 is None and (isinstance(place, WebPlace) or place.revision is None)
    return _own_name(model, catalog, store, as_seen=free and not fetching.update)


def _by_name(
    asked: Asked, catalog: Catalog, store: Store, fetching: Fetching, progress: Progress
) -> WantedModel:
    if asked.name is not None or asked.sha256 is not None:
        raise UsageError(
            f"--name and --sha256 are for places, and {asked.text} is a name",
            "hf:OWNER/REPOSITORY/FILE.gguf and https:// are places.",
        )
    if asked.text in catalog.models:
        return catalog.models[asked.text]
    record, pending = store.record(asked.text), store.pending(asked.text)
    if record is not None:
        return recorded(asked.text, record)
    if fetching.peer is not None:
        from zluda_stack.models.peer import open_peer

        name = checked_name(asked.text)
        return recorded(name, open_peer(fetching.peer, fetching).record(name, progress))
    return pending or find_model(catalog, asked.text)


def _from_web(asked: Asked, place: WebPlace) -> Described:
    files = _with_hash(
        asked,
        tuple(ModelFile(name=name, sha256=None, size=None) for name in all_parts(place.file)),
    )
    name = asked.name or name_of(place.file)
    return Described(name=checked_name(name), files=files, https=place.folder)


def _from_hub(asked: Asked, place: HubPlace, fetching: Fetching, progress: Progress) -> Described:
    revision = place.revision
    if place.file is not None:
        files = tuple(
            ModelFile(name=name, sha256=None, size=None) for name in all_parts(place.file)
        )
    else:
        from zluda_stack.models.hub import open_hub

        found = open_hub(fetching).repository(place.repository, revision, progress)
        there = {file.name: file.to_fetch() for file in found.files}
        files = tuple(there[name] for name in choose(there, place))
        revision = found.revision
    files = _with_hash(asked, files)
    name = asked.name or name_of(files[0].name)
    hub = HubModel(repository=place.repository, revision=revision)
    return Described(name=checked_name(name), files=files, hub=hub)


def _with_hash(asked: Asked, files: tuple[ModelFile, ...]) -> tuple[ModelFile, ...]:
    """`files` with the hash that the user gave. Raises UsageError when it is not that of one."""
    if asked.sha256 is None:
        return files
    if len(files) > 1:
        raise UsageError(
            f"{asked.text} is {len(files)} files, and --sha256 is the hash of one",
            "Leave it out: the hub knows the hashes.",
        )
    if files[0].sha256 not in {None, asked.sha256}:
        raise HostProblem(
            f"{files[0].name} has another content there: expected sha256 {asked.sha256}, the hub "
            f"names {files[0].sha256}",
            "Check the hash that you gave, or name a revision.",
        )
    return (structs.replace(files[0], sha256=asked.sha256),)


def _own_name(model: Described, catalog: Catalog, store: Store, *, as_seen: bool) -> WantedModel:
    """`model`, or the catalogue's when that is the same; or as the store has it, if `as_seen`.

    Raises UsageError when its name is taken by another one.
    """
    known = catalog.models.get(model.name)
    if known is not None:
        if known.hub is not None and _same_place(model, known):
            return known
        raise _taken(model.name, "the catalogue")
    record = store.record(model.name)
    if record is not None and not _same_place(model, recorded(model.name, record)):
        raise _taken(model.name, f"the store, from {record.source}")
    return model if record is None or not as_seen else recorded(model.name, record)


def _same_place(one: WantedModel, other: WantedModel) -> bool:
    repositories = [model.hub.repository if model.hub else None for model in (one, other)]
    names = [[file.name.partition("?")[0] for file in model.files] for model in (one, other)]
    return repositories[0] == repositories[1] and one.https == other.https and names[0] == names[1]


def _taken(name: str, whose: str) -> UsageError:
    return UsageError(
        f"{name} is another model of {whose}", "Give this one another name with --name."
    )
