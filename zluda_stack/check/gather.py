"""Reads everything that the user named, and what it needs from folders of its search path."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from zluda_stack.check.closure import INSIDE, searched_folders
from zluda_stack.check.facts import FileFacts
from zluda_stack.check.sources import Found, Source

Look = Callable[[Path, str], FileFacts]


class Gathered(Struct, frozen=True):
    """All files, the links among them, and which of them the user named by themselves."""

    files: tuple[FileFacts, ...]
    links: dict[str, str]
    required: frozenset[str]


def gather(sources: Iterable[Source], look: Look, progress: Callable[[str], None]) -> Gathered:
    """Look at every file of `sources`, and at the libraries that local ones bring in.

    A library is brought in when a file needs it and its own search path has it on this disk.
    Raises StackError when a source as a whole cannot be read.
    """
    files: dict[str, FileFacts] = {}
    links: dict[str, str] = {}
    required: set[str] = set()
    for source in sources:
        required.update(source.required)
        for found in source.files():
            if found.name not in files:
                progress(found.name)
                files[found.name] = _look(found, look)
        links.update(source.links)
    waiting = list(files.values())
    while waiting:
        for name in _brought_in(waiting.pop()):
            if name not in files and name not in links:
                progress(name)
                facts = look(Path(name), name)
                files[name] = facts
                waiting.append(facts)
    return Gathered(tuple(files.values()), links, frozenset(required))


def _look(found: Found, look: Look) -> FileFacts:
    if found.path is None:
        unreadable = not found.is_damaged
        return FileFacts(name=found.name, bytes=0, problem=found.problem, unreadable=unreadable)
    return look(found.path, found.name)


def _brought_in(facts: FileFacts) -> Iterable[str]:
    """The files on this disk that serve what a local file needs, each by its first folder."""
    if INSIDE in facts.name:
        return
    for library in facts.needed:
        for folder in searched_folders(facts):
            file = Path(folder, library)
            if file.is_file():
                yield str(file)
                break
