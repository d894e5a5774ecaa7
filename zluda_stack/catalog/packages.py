"""What there is for AMD's cards of Python packages that compute on NVIDIA's."""

from __future__ import annotations

from enum import Enum
from functools import cached_property

from msgspec import Struct

from zluda_stack.catalog.schema import GfxTarget, Provenance
from zluda_stack.catalog.text import load_text


class Support(str, Enum):
    """How much of a package there is for ROCm; each is described in data/rocm-packages.yml."""

    YES = "yes"
    SOURCE = "source"
    PART = "part"
    NO = "no"


class RocmPackage(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One package, with all names that it goes by."""

    title: str
    names: tuple[str, ...]
    imports: tuple[str, ...]
    support: Support
    offers: str
    install: str = ""
    cards: tuple[GfxTarget, ...] = ()
    provenance: Provenance


class RocmPackages(Struct, frozen=True, dict=True):
    """All of them."""

    packages: tuple[RocmPackage, ...]

    def named(self, name: str) -> RocmPackage | None:
        """The package of that name, however it is spelt."""
        return self._by_name.get(plain(name))

    def importing(self, module: str) -> RocmPackage | None:
        """The package that has the module, which may be a part of a larger one (numba.cuda)."""
        parts = module.split(".")
        prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        return next((self._by_import[one] for one in prefixes if one in self._by_import), None)

    @cached_property
    def _by_name(self) -> dict[str, RocmPackage]:
        return {name: package for package in self.packages for name in package.names}

    @cached_property
    def _by_import(self) -> dict[str, RocmPackage]:
        return {module: package for package in self.packages for module in package.imports}


def plain(name: str) -> str:
    """A package's name as the index compares it (PEP 503), without extras and versions."""
    letters = name.lower().replace("_", "-").replace(".", "-")
    return "-".join(part for part in letters.split("-") if part)


def rocm_packages() -> RocmPackages:
    """The packages. Raises StackError when the catalogue's file is broken."""
    return RocmPackages(load_text("rocm-packages", tuple[RocmPackage, ...], "packages.py"))
