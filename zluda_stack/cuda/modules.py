"""The PTX modules that a file holds, wherever they are in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from zluda_stack.cuda import elf, fatbin, ptx
from zluda_stack.cuda.fatbin import CodeKind, Entry

_START = 1 << 16


class Module(Struct, frozen=True):
    """One PTX module: in a fat binary (`entry`), or a file of its own."""

    name: str
    path: Path
    entry: Entry | None = None

    def text(self) -> bytes:
        """The module's text. Raises StackError when it cannot be had."""
        if self.entry is not None:
            return self.entry.content()
        with elf.mapped(self.path) as data:
            return data[:]


def modules(files: Iterable[Path]) -> Iterator[Module]:
    """Every PTX module in `files`: programs, libraries, bare fat binaries and PTX text.

    A module of a fat binary is named after its file, its place there and its architecture:
    server#2.1:sm_80 is the first entry of the second fat binary. Raises StackError for a file
    that is none of these, damaged or unreadable.
    """
    for path in files:
        with elf.mapped(path) as data:
            is_text = ptx.is_ptx(data[:_START])
        if is_text:
            yield Module(path.name, path)
            continue
        for entry in fatbin.read(path):
            if entry.kind is CodeKind.PTX:
                name = f"{path.name}#{entry.container}.{entry.number}:{entry.architecture}"
                yield Module(name, path, entry)
