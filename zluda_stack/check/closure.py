"""Where the libraries that a file needs come from, among what was given."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from enum import Enum

from msgspec import Struct

from zluda_stack.catalog.coverage import Coverage
from zluda_stack.catalog.cuda import CudaLibraries
from zluda_stack.check.facts import FileFacts
from zluda_stack.cuda.coverage import zluda_library

# Between the name of an archive or an image and the place of a file in it.
INSIDE = "!"


class Origin(str, Enum):
    """Where a needed library comes from."""

    GIVEN = "given"
    ZLUDA = "ZLUDA"
    NVIDIA = "NVIDIA"
    SYSTEM = "system"
    MISSING = "missing"


class Need(Struct, frozen=True):
    """A library that a file needs; `file` is the given one that serves, if any."""

    library: str
    origin: Origin
    file: str | None = None


class Given(Struct, frozen=True):
    """What was given, by full name and by the bare names that a loader would know it by.

    `links` are symbolic links inside an archive or image, each with what it points to.
    """

    names: frozenset[str]
    by_bare_name: Mapping[str, str]
    links: Mapping[str, str]

    @classmethod
    def of(cls, files: Iterable[FileFacts], links: Mapping[str, str]) -> Given:
        """The same for files that were read."""
        bare: dict[str, str] = {}
        names = []
        for file in files:
            names.append(file.name)
            bare.setdefault(posixpath.basename(file.name), file.name)
            if file.soname:
                bare.setdefault(file.soname, file.name)
        for link in links:
            bare.setdefault(posixpath.basename(link), link)
        return cls(frozenset(names), bare, links)


def needs(
    coverage: Coverage, libraries: CudaLibraries, facts: FileFacts, given: Given
) -> tuple[Need, ...]:
    """Where each library that a file needs comes from.

    A file's own search path (DT_RPATH, DT_RUNPATH with $ORIGIN) comes first; then anything given
    counts that is called so, because a program may have loaded it before. ZLUDA's own stand
    before both: it is put in front.
    """
    return tuple(_need(coverage, libraries, facts, given, library) for library in facts.needed)


def searched_folders(facts: FileFacts) -> tuple[str, ...]:
    """The folders of a file's own search path, $ORIGIN put in."""
    archive, separator, place = facts.name.rpartition(INSIDE)
    origin = posixpath.dirname(place) or "."
    folders = []
    for folder in facts.rpath:
        full = folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
        folders.append(archive + separator + posixpath.normpath(full))
    return tuple(folders)


def _need(
    coverage: Coverage, libraries: CudaLibraries, facts: FileFacts, given: Given, library: str
) -> Need:
    if zluda_library(coverage, library) is not None:
        return Need(library, Origin.ZLUDA)
    for folder in searched_folders(facts):
        name = posixpath.join(folder, library)
        if name in given.names or name in given.links:
            return Need(library, Origin.GIVEN, name)
    if library in given.by_bare_name:
        return Need(library, Origin.GIVEN, given.by_bare_name[library])
    if libraries.named(library) is not None:
        return Need(library, Origin.NVIDIA)
    return Need(library, Origin.SYSTEM if library in libraries.system else Origin.MISSING)
