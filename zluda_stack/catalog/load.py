"""Read the catalogue's YAML files, check them against the schema and against each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import yaml

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
_WORDS = {"true": True, "false": False, "null": None, "": None}


def load(directory: Path | None = None) -> Catalog:
    """The catalogue in `directory` (default: the one that ships with the package).

    Raises StackError, naming the file and the place in it, when a file is missing, is not YAML,
    does not fit the schema, or names an entry that does not exist.
    """
    folder = directory or _DATA
    catalog = Catalog(
        gpus=_entries(folder, "gpus", Gpu),
        bases=_entries(folder, "bases", BaseImage),
        variants=_entries(folder, "variants", Variant),
        components=_entries(folder, "components", Component),
        models=_entries(folder, "models", Model),
        clients=_entries(folder, "clients", Client),
        combinations=_entries(folder, "combinations", Combination),
        defaults=_convert(folder, "defaults", _read(folder, "defaults"), Defaults),
        host=_convert(folder, "host", _read(folder, "host"), HostNeeds),
    )
    for kind, where, problem in _contradictions(catalog):
        raise _broken(folder, kind, where, problem)
    return catalog


def _entries(folder: Path, kind: str, entry: type[_Entry]) -> dict[str, _Entry]:
    raw = _read(folder, kind)
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


def _read(folder: Path, kind: str) -> object:
    path = folder / f"{kind}.yml"
    try:
        document = _plain(yaml.compose(path.read_bytes(), Loader=_Nodes), {})
    except OSError as error:
        raise StackError(
            f"cannot read {path}: {error.strerror}", "Install zluda-stack again."
        ) from error
    except yaml.YAMLError as error:
        raise StackError(f"{path} is not valid YAML: {error}", _HINT) from error
    if not isinstance(document, dict) or list(document) != [kind]:
        raise _broken(folder, kind, kind, f"the file must hold the one key {kind!r}")
    return document[kind]


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


class _Nodes(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
    """YAML's nodes, without the search for their types."""

    def resolve(self, kind: object, value: object, implicit: object) -> str:  # noqa: ARG002
        return ""


def _plain(node: yaml.Node | None, seen: dict[int, object]) -> object:
    """What the YAML says: a bare word is true, false, null or a whole number, or else a text.

    That is less than YAML knows and takes less than half the time of its safe loader. `seen` are
    the values of nodes that have an alias. A key given twice is an error, where YAML keeps one.
    """
    if isinstance(node, yaml.ScalarNode):
        return node.value if node.style else _word(node.value)
    if id(node) not in seen:
        if isinstance(node, yaml.MappingNode):
            _refuse_twice(node)
            seen[id(node)] = {key.value: _plain(value, seen) for key, value in node.value}
        elif isinstance(node, yaml.SequenceNode):
            seen[id(node)] = [_plain(item, seen) for item in node.value]
    return seen.get(id(node))


def _word(text: str) -> object:
    if text in _WORDS:
        return _WORDS[text]
    return int(text) if text.isdecimal() else text


def _refuse_twice(node: yaml.MappingNode) -> None:
    if len({key.value for key, _ in node.value}) == len(node.value):
        return
    names: set[str] = set()
    for key, _ in node.value:
        if key.value in names:
            raise yaml.constructor.ConstructorError(
                problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark
            )
        names.add(key.value)
