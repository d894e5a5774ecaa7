"""Looking at what somebody asks about: a path, or a name of something."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from zluda_stack.advise.models import Wanted, Weigher
from zluda_stack.advise.question import Situation, Subject
from zluda_stack.advise.subjects import Form, of_package, of_program, of_sources
from zluda_stack.catalog.nearest import did_you_mean
from zluda_stack.catalog.packages import RocmPackage, rocm_packages
from zluda_stack.catalog.porting import porting
from zluda_stack.catalog.schema import Catalog
from zluda_stack.check.report import Report
from zluda_stack.check.sources import local
from zluda_stack.errors import UsageError
from zluda_stack.models.architecture import Architecture, known_architecture
from zluda_stack.models.at_hand import architecture_at_hand
from zluda_stack.models.store import Store
from zluda_stack.port.folder import is_source, read_folder
from zluda_stack.port.python import asked_for
from zluda_stack.port.tree import Tree, survey
from zluda_stack.settings import Settings

_ARCHIVES = (".whl", ".zip")
_IMAGE = "image:"
# A requirement as pip has them (PEP 508): a name, then extras, versions or a condition.
_REQUIREMENT = re.compile(
    r"([A-Za-z0-9](?:[\w.-]*\w)?)\s*(?:\[[\w.,\s-]*\]\s*)?(?:[=<>~!(;].*|\s@\s.*)?"
)
_LIBRARY = re.compile(r"\.so(\.\d+)*$|\.(ptx|cubin|fatbin)$")
Examine = Callable[[str], Report]


class Seen(Struct, frozen=True, kw_only=True):
    """What was seen; `tree` and `report` are all of it, where there is one."""

    subject: Subject
    packages: tuple[RocmPackage, ...] = ()
    tree: Tree | None = None
    report: Report | None = None


class Looker(Struct, frozen=True, kw_only=True):
    """What looking needs: the card, the catalogue, the store, and `check` for programs.

    `settings` are what a model would be served with. `tell` is given the name of each source that
    is read.
    """

    situation: Situation
    catalog: Catalog
    settings: Settings
    store: Store
    examine: Examine
    tell: Callable[[str], None]

    def at(self, thing: str) -> Seen:
        """What `thing` is: a path, else a model, a package or an image by its name.

        Raises UsageError for what is none of them, HostProblem for what cannot be read.
        """
        path = Path(thing).expanduser()
        if thing.lower().endswith(".gguf"):
            return self._model(thing, known_architecture(path))
        if path.is_dir() or (path.is_file() and is_source(path.name)):
            return self._sources(thing, path)
        if path.exists() or thing.startswith((".", "/", "~")):
            return self._program(thing, _form_of(path))
        return self._named(thing)

    def _sources(self, thing: str, path: Path) -> Seen:
        files = read_folder(path, self.tell)
        asked = asked_for(files.python, rocm_packages())
        tree = survey(files.sources, porting(), files.unread, self.tell)
        if path.is_dir() and not tree.files and not asked and _holds_programs(thing):
            return self._program(thing, "folder")
        return Seen(
            subject=of_sources(thing, tree, asked, self.situation),
            packages=tuple(each.package for each in asked),
            tree=tree,
        )

    def _named(self, name: str) -> Seen:
        stored, known = self.store.find(name), self.catalog.models.get(name)
        if known is not None:
            return self._model(name, architecture_at_hand(known, stored), known.context_length)
        if stored is not None:
            return self._model(name, known_architecture(stored))
        name = _project_of(name)
        if name.startswith(_IMAGE) or ":" in name or "@" in name:
            return self._program(name, "image")
        package = rocm_packages().named(name)
        if package is not None:
            return Seen(subject=of_package(name, package, self.situation), packages=(package,))
        try:
            return self._program(name, "package")
        except UsageError as error:
            near = did_you_mean(name, self.catalog.models)
            raise UsageError(
                f"there is no file, model or installed package {name}",
                f"{near}Name a path, a model of `zluda-stack models list`, an installed package, "
                f"or a local image as {_IMAGE}{name}.",
            ) from error

    def _model(self, name: str, shape: Architecture | None, trained: int | None = None) -> Seen:
        if trained is None and shape is not None:
            trained = shape.context_length
        wanted = Wanted(name=name, shape=shape, trained=trained)
        weigher = Weigher(settings=self.settings, catalog=self.catalog)
        return Seen(subject=weigher.of_model(wanted, self.situation))

    def _program(self, thing: str, form: Form) -> Seen:
        report = self.examine(thing)
        name = Path(thing).name.partition("-")[0] if form == "wheel" else thing
        package = rocm_packages().named(name) if form in ("wheel", "package") else None
        return Seen(
            subject=of_program(thing, form, report, package, self.situation),
            packages=() if package is None else (package,),
            report=report,
        )


def _project_of(name: str) -> str:
    """The package that a requirement such as torch[x]>=2.9 asks for; any other name as it is."""
    found = _REQUIREMENT.fullmatch(name)
    return found[1] if found else name


def _form_of(path: Path) -> Form:
    if path.is_dir():
        return "folder"
    if path.name.endswith(_ARCHIVES):
        return "wheel"
    return "library" if _LIBRARY.search(path.name) else "binary"


def _holds_programs(folder: str) -> bool:
    """True when `check` would find something in a folder without sources."""
    found: Iterator[object] = iter(local(folder).files())
    return next(found, None) is not None
