"""Read the catalogue's YAML files, check them against the schema and against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from zluda_stack.catalog import kept
from zluda_stack.catalog.schema import (
    BaseImage,
    Catalog,
    Client,
    Combination,
    Component,
    Defaults,
    Gpu,
    HostNeeds,
    Model,
    Variant,
)
from zluda_stack.errors import StackError

_DATA = Path(__file__).parent / "data"
_HINT = "Correct the file; its shape is described in zluda_stack/catalog/schema.py."
_Entry = TypeVar("_Entry")
KINDS = (
    *("gpus", "bases", "variants", "components", "models", "clients", "combinations"),
    *("defaults", "host"),
)


def load(directory: Path | None = None, keep_at: Path | None = None) -> Catalog:
    """The catalogue in `directory` (default: the one that ships with the package).

    What the YAML says is kept in the file `keep_at`, so that the next call with the same need not
    parse it. Raises StackError, naming the file and the place in it, when a file is missing, is
    not YAML, does not fit the schema, or names an entry that does not exist.
    """
    folder = directory or _DATA
    said = _documents(folder, keep_at)
    catalog = Catalog(
        gpus=_entries(folder, "gpus", said, Gpu),
        bases=_entries(folder, "bases", said, BaseImage),
        variants=_entries(folder, "variants", said, Variant),
        components=_entries(folder, "components", said, Component),
        models=_entries(folder, "models", said, Model),
        clients=_entries(folder, "clients", said, Client),
        combinations=_entries(folder, "combinations", said, Combination),
        defaults=_convert(folder, "defaults", said["defaults"], Defaults),
        host=_convert(folder, "host", said["host"], HostNeeds),
    )
    for kind, where, problem in _contradictions(catalog):
        raise _broken(folder, kind, where, problem)
    return catalog


def _entries(
    folder: Path, kind: str, said: Mapping[str, object], entry: type[_Entry]
) -> dict[str, _Entry]:
    raw = said[kind]
    if not isinstance(raw, dict):
        raise _broken(folder, kind, kind, "must map names to entries")
    return {
        str(key): _convert(folder, kind, value, entry, key=str(key)) for key, value in raw.items()
    }


def _convert(folder: Path, kind: str, raw: object, entry: type[_Entry], *, key: str = "") -> _Entry:
    try:
        return msgspec.convert(raw, type=entry, strict=True)
    except msgspec.ValidationError as error:
        problem, _, inner = str(error).partition(" - at `$")
        where = ".".join(part for part in (kind, key) if part) + inner.rstrip("`")
        raise _broken(folder, kind, where, problem) from error


def _documents(folder: Path, keep_at: Path | None) -> dict[str, object]:
    """What the files of `folder` say, by kind."""
    files = {kind: _read(folder / f"{kind}.yml") for kind in KINDS}
    if keep_at is None:
        return _parsed(folder, files)
    said = kept.recall(keep_at, files)
    if said is None:
        said = _parsed(folder, files)
        kept.keep(keep_at, files, said)
    return said


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StackError(
            f"cannot read {path}: {error.strerror}", "Install zluda-stack again."
        ) from error


def _parsed(folder: Path, files: dict[str, bytes]) -> dict[str, object]:
    from yaml import YAMLError  # its import takes as long as the parsing

    from zluda_stack.catalog import plain_yaml

    said: dict[str, object] = {}
    for kind, raw in files.items():
        try:
            document = plain_yaml.parse(raw)
        except YAMLError as error:
            raise StackError(f"{folder / kind}.yml is not valid YAML: {error}", _HINT) from error
        if not isinstance(document, dict) or list(document) != [kind]:
            raise _broken(folder, kind, kind, f"the file must hold the one key {kind!r}")
        said[kind] = document[kind]
    return said


def _broken(folder: Path, kind: str, where: str, problem: str) -> StackError:
    return StackError(f"{folder / kind}.yml: {where}: {problem}", _HINT)


def _contradictions(catalog: Catalog) -> Iterator[tuple[str, str, str]]:
    """(file, place in it, problem) for every name that points nowhere or is not its key."""
    yield from _misnamed(catalog)
    for gpu in catalog.gpus.values():
        fallback = gpu.kernel_fallback
        if fallback and fallback.target not in catalog.gpus:
            place = f"gpus.{gpu.target}.kernel_fallback.target"
            yield "gpus", place, f"no GPU is named {fallback.target}"
    for variant in catalog.variants.values():
        yield from _incomplete(catalog, variant)
    for combination in catalog.combinations.values():
        yield from _dangling(catalog, combination)
    defaults = catalog.defaults
    for key, name, known in (
        ("variant", defaults.variant, catalog.variants.keys()),
        ("combination", defaults.combination, catalog.combinations.keys()),
        ("native", defaults.native, catalog.combinations.keys()),
        ("model", defaults.model, catalog.models.keys()),
    ):
        if name not in known:
            yield "defaults", f"defaults.{key}", f"no {key} is named {name}"


def _misnamed(catalog: Catalog) -> Iterator[tuple[str, str, str]]:
    names = {
        "gpus": {key: gpu.target for key, gpu in catalog.gpus.items()},
        "bases": {key: f"{base.name}:{base.tag}" for key, base in catalog.bases.items()},
        "variants": {key: entry.name for key, entry in catalog.variants.items()},
        "components": {key: entry.name for key, entry in catalog.components.items()},
        "models": {key: entry.name for key, entry in catalog.models.items()},
        "clients": {key: entry.name for key, entry in catalog.clients.items()},
        "combinations": {key: entry.name for key, entry in catalog.combinations.items()},
    }
    for kind, by_key in names.items():
        for key, name in by_key.items():
            if key != name:
                yield kind, f"{kind}.{key}", f"the entry calls itself {name}"


def _incomplete(catalog: Catalog, variant: Variant) -> Iterator[tuple[str, str, str]]:
    place = f"variants.{variant.name}"
    for key, base in (("development", variant.development), ("runtime", variant.runtime)):
        if base not in catalog.bases:
            yield "variants", f"{place}.{key}", f"no base is named {base}"
    if variant.cuda_apt not in catalog.components:
        yield "variants", f"{place}.cuda_apt", f"no component is named {variant.cuda_apt}"
    roles = {role for other in catalog.variants.values() for role in other.packages}
    for role in sorted(roles - set(variant.packages)):
        yield "variants", f"{place}.packages", f"the role {role} of another variant is missing"


def _dangling(catalog: Catalog, combination: Combination) -> Iterator[tuple[str, str, str]]:
    place = f"combinations.{combination.name}"
    if combination.variant not in catalog.variants:
        yield "combinations", f"{place}.variant", f"no variant is named {combination.variant}"
    for name, version in combination.components.items():
        component = catalog.components.get(name)
        if component is None:
            yield "combinations", f"{place}.components", f"no component is named {name}"
        elif component.version != version:
            problem = f"the catalogue has {component.version}, not {version}"
            yield "combinations", f"{place}.components.{name}", problem
    for target in combination.targets:
        if target not in catalog.gpus:
            yield "combinations", f"{place}.targets", f"no GPU is named {target}"
