"""The models of the catalogue and of the store, side by side."""

from __future__ import annotations

from msgspec import Struct

from zluda_stack.catalog.nearest import did_you_mean
from zluda_stack.catalog.schema import Catalog, Evidence, Model
from zluda_stack.errors import UsageError
from zluda_stack.models.store import Entry, EntryState, Store
from zluda_stack.plan.model import names_a_file

NOT_HERE = "not here"
OUTDATED = "outdated"


class ListedModel(Struct, frozen=True, kw_only=True):
    """One line of `models list`. Sizes are in bytes, the context length in tokens.

    `state` is one of EntryState's values, "not here", or "outdated" when the catalogue has
    another content now. `bytes` and what follows `evidence` are what the store has; the rest is
    the catalogue's, None for a model that it does not have (any more). `repository` is that of
    the hub.
    """

    name: str
    state: str
    bytes: int
    title: str | None
    parameters: str | None
    active: str | None
    quantisation: str | None
    size: int | None
    context_length: int | None
    template: str | None
    tools: bool | None
    licence: str | None
    restriction: str | None
    repository: str | None
    evidence: Evidence | None
    sha256: str | None
    source: str | None
    path: str | None


def listed(catalog: Catalog, store: Store) -> tuple[ListedModel, ...]:
    """Every model that is in the catalogue or in the store, by name."""
    entries = {entry.name: entry for entry in store.entries()}
    names = sorted({*catalog.models, *entries})
    return tuple(_line(name, catalog.models.get(name), entries.get(name)) for name in names)


def find_model(catalog: Catalog, name: str) -> Model:
    """The catalogue's model `name`. Raises UsageError with the nearest name."""
    model = catalog.models.get(name)
    if model is not None:
        return model
    if names_a_file(name):
        raise UsageError(
            f"{name} is a file, and a file needs no pull",
            f"Use it: `zluda-stack up --model {name}`",
        )
    raise UsageError(f"there is no model {name!r}", _nearest_first(name, catalog.models))


def find_entry(store: Store, name: str) -> Entry:
    """The store's model `name`. Raises UsageError with the nearest name."""
    entries = {entry.name: entry for entry in store.entries()}
    if name not in entries:
        raise UsageError(f"the store has no model {name!r}", _nearest_first(name, entries))
    return entries[name]


def _nearest_first(name: str, known: dict[str, Model] | dict[str, Entry]) -> str:
    return f"{did_you_mean(name, known)}`zluda-stack models list` shows all."


def _line(name: str, model: Model | None, entry: Entry | None) -> ListedModel:
    return ListedModel(
        name=name,
        state=_state(model, entry),
        bytes=0 if entry is None else entry.bytes,
        title=model.title if model else None,
        parameters=model.parameters if model else None,
        active=model.active if model else None,
        quantisation=model.quantisation if model else None,
        size=model.size if model else None,
        context_length=model.context_length if model else None,
        template=model.template if model else None,
        tools=model.tools if model else None,
        licence=model.licence if model else None,
        restriction=model.restriction if model else None,
        repository=model.hub.repository if model and model.hub else None,
        evidence=model.provenance.evidence if model else None,
        sha256=entry.sha256 if entry else None,
        source=entry.source if entry else None,
        path=entry.path if entry else None,
    )


def _state(model: Model | None, entry: Entry | None) -> str:
    if entry is None:
        return NOT_HERE
    known = model is None or entry.record is None or entry.record.is_of(model)
    return OUTDATED if entry.state is EntryState.READY and not known else entry.state.value
