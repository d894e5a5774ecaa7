"""Which packages for NVIDIA's cards a Python project asks for, by its files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from zluda_stack.catalog.packages import RocmPackage, RocmPackages

_IMPORT = re.compile(
    r"^[^\S\n]*(?:from[^\S\n]+([\w.]+)[^\S\n]+import[^\S\n]+(\w+)|import[^\S\n]+([\w., \t]+))",
    re.MULTILINE,
)
_REQUIRED = re.compile(r"^[^\S\n]*(?:-[^\S\n]+)?([A-Za-z][\w.-]*)", re.MULTILINE)
_QUOTED = re.compile(r"""["']([A-Za-z][\w.-]*)[^\n"']*["']""")
_KEY = re.compile(r"^([A-Za-z][\w.-]*)[^\S\n]*=", re.MULTILINE)
_LONG_STRING = re.compile(r""""{3}.*?"{3}|'{3}.*?'{3}""", re.DOTALL)
_COMMENT = re.compile(r"(?<![^\s])#[^\n]*")
_LISTS = re.compile(
    r"(^|/)(requirements[^/]*\.(txt|in)|constraints[^/]*\.txt|environment[^/]*\.ya?ml)$"
)
_TABLES = re.compile(r"(^|/)(pyproject\.toml|setup\.py|setup\.cfg|Pipfile)$")


class Asked(Struct, frozen=True):
    """A package, and the first file that asks for it."""

    package: RocmPackage
    file: str


def asked_for(texts: Iterable[tuple[str, str]], packages: RocmPackages) -> tuple[Asked, ...]:
    """The packages that `texts`, which are (file, text), ask for or import, each once."""
    found: dict[str, Asked] = {}
    for file, text in texts:
        for package in _packages(file, _COMMENT.sub("", text), packages):
            found.setdefault(package.title, Asked(package, file))
    return tuple(found.values())


def is_wanted(name: str) -> bool:
    """True for the name of a file that `asked_for` reads."""
    return name.endswith(".py") or bool(_LISTS.search(name) or _TABLES.search(name))


def _packages(file: str, text: str, packages: RocmPackages) -> Iterator[RocmPackage]:
    names: list[str] = []
    if _LISTS.search(file):
        names = _REQUIRED.findall(text)
    elif _TABLES.search(file):
        names = [*_QUOTED.findall(text), *_KEY.findall(text), *_REQUIRED.findall(text)]
    modules = _modules(_LONG_STRING.sub("", text)) if file.endswith(".py") else ()
    for package in (*map(packages.named, names), *map(packages.importing, modules)):
        if package is not None:
            yield package


def _modules(text: str) -> Iterator[str]:
    for found in _IMPORT.finditer(text):
        if found[1]:
            yield f"{found[1]}.{found[2]}"
        else:
            yield from (part.split()[0] for part in found[3].split(",") if part.strip())
