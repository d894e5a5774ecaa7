"""Reads one file: its ELF headers, the CUDA code in it, and the names of what it uses."""

from __future__ import annotations

import hashlib
import re
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from mmap import mmap
from pathlib import Path, PurePosixPath

from msgspec import Struct, structs

from zluda_stack.catalog.coverage import Coverage
from zluda_stack.catalog.cuda import CudaLibraries, CudaLibrary, Role, ZludaCode
from zluda_stack.check import embedded, strings
from zluda_stack.check.facts import Cubin, FileFacts, Function, Ptx
from zluda_stack.check.ptx_misses import Known, Miss, misses
from zluda_stack.cuda import coverage as covering
from zluda_stack.cuda import elf, fatbin, ptx
from zluda_stack.cuda.coverage import Support
from zluda_stack.cuda.elf import Elf, Section
from zluda_stack.cuda.fatbin import CodeKind, Entry
from zluda_stack.errors import HostProblem, StackError, UsageError

_CUDA_MACHINE = "CUDA"
_HEAD = 1 << 16
_TARGET = re.compile(rb"\.version\s+(\d+\.\d+)(?:\s|//[^\n]*\n)+\.target\s+(\w+)")
_TARGET_LINE = re.compile(rb"\.target[^\n]*\n")
# cudart tells its user so; the text is in it alone, linked statically or not.
_CUDART_SAYS = re.compile(rb"CUDA driver version is insufficient for CUDA runtime version")
_CUDART = "libcudart"
# A program with more fat binaries without PTX than this is told of so many.
_MOST_LOOKED_INTO = 64
# Code outside of fat binaries, of which no program has so much.
_MOST_BLOBS = 10_000
_NOT_SEARCHED = (
    ".debug",
    ".symtab",
    ".strtab",
    ".dynsym",
    ".dynstr",
    ".rela",
    ".text",
    ".eh_frame",
)


class World(Struct, frozen=True):
    """What is known of ZLUDA and of CUDA, made ready for reading many files."""

    coverage: Coverage
    libraries: CudaLibraries
    known: Known
    library_names: re.Pattern[bytes]
    functions: frozenset[str]

    @classmethod
    def of(cls, coverage: Coverage, libraries: CudaLibraries, code: ZludaCode) -> World:
        """The same from the catalogue."""
        covered = coverage.libraries.values()
        return cls(
            coverage=coverage,
            libraries=libraries,
            known=Known.of(coverage, code),
            library_names=strings.of_libraries(libraries.stems),
            functions=frozenset().union(
                *(one.implemented | one.not_implemented for one in covered)
            ),
        )


def is_candidate(start: bytes, name: str) -> bool:
    """Whether a file that begins with `start` is one that `inspect` has something to say of."""
    if start.startswith((elf.MAGIC, fatbin.MAGIC)):
        return True
    return name.endswith(".ptx") and ptx.is_ptx(start)


def inspect(world: World, path: Path, name: str) -> FileFacts:
    """What the file at `path` holds; `name` is what people call it. Never raises StackError."""
    size = 0
    try:
        with elf.mapped(path) as data:
            size = len(data)
            return _Reader(world, path, name, data).facts()
    except StackError as error:
        problem = error.message.replace(str(path), PurePosixPath(name).name)
        unreadable = isinstance(error, HostProblem)
        return FileFacts(name=name, bytes=size, problem=problem, unreadable=unreadable)


class _Reader:
    """Reads one mapped file."""

    def __init__(self, world: World, path: Path, name: str, data: mmap) -> None:
        self.world = world
        self.path = path
        self.name = name
        self.base = PurePosixPath(name).name
        self.stem = PurePosixPath(name).stem
        self.data = data
        self._misses: dict[bytes, tuple[Miss, ...]] = {}

    def facts(self) -> FileFacts:
        start = self.data[:_HEAD]
        if start.startswith(elf.MAGIC):
            return self._elf()
        empty = FileFacts(name=self.name, bytes=len(self.data))
        if start.startswith(fatbin.MAGIC):
            whole = Section("", 0, len(self.data))
            entries, problem = fatbin.entries_until_damage(self.path, self.data, whole)
            return self._with_code(empty, entries, (), "fat binary", problem)
        if ptx.is_ptx(start):
            text = embedded.Blob("", 0, len(self.data), None)
            found = self._with_code(empty, (), [text], "ptx", None)
            return structs.replace(found, problem=found.ptx[0].problem)
        raise UsageError(f"{self.path} is no program, library, fat binary or PTX")

    def _elf(self) -> FileFacts:
        found = elf.read(self.path)
        facts = FileFacts(
            name=self.name,
            bytes=len(self.data),
            machine=found.machine,
            bits=found.bits,
            interpreter=found.interpreter,
            soname=found.soname,
            needed=found.needed,
            rpath=tuple(filter(None, (found.runpath or found.rpath or "").split(":"))),
        )
        if found.machine == _CUDA_MACHINE:
            architecture = embedded.architecture_of_cubin(self.data[:64]) or "unknown"
            whole = embedded.Blob("", 0, len(self.data), architecture)
            return self._with_code(facts, (), [whole], "cubin", None)
        entries, problem = self._entries(found)
        rest = [section for section in found.sections if _is_searched(section)]
        entries += tuple(embedded.fat_binaries(self.path, self.data, rest))
        outside = _outside(embedded.blobs(self.data, rest), entries)
        blobs = list(islice(outside, _MOST_BLOBS))
        return self._with_names(self._with_code(facts, entries, blobs, found.kind, problem), found)

    def _entries(self, found: Elf) -> tuple[tuple[Entry, ...], str | None]:
        """The entries in the sections for device code, and what is wrong with the first bad one."""
        entries: tuple[Entry, ...] = ()
        problem = None
        for section in found.sections:
            if section.name in fatbin.SECTIONS:
                more, fault = fatbin.entries_until_damage(self.path, self.data, section)
                entries += more
                problem = problem or fault
        return entries, problem

    def _with_names(self, facts: FileFacts, found: Elf) -> FileFacts:
        world = self.world
        opens = strings.named_libraries(self.data, found.sections, world.library_names)
        imports = tuple(_imports(world, found))
        names = strings.named_functions(self.data, found.sections, world.functions)
        names -= {function.name for function in imports}
        own = facts.soname or self.base
        return structs.replace(
            facts,
            imports=imports,
            opens=tuple(sorted(opens - set(found.needed) - {own})),
            looks_up=tuple(sorted(_looked_up(world, names, found.needed, opens))),
            static_cudart=not own.startswith(_CUDART) and self._has_cudart(found),
        )

    def _has_cudart(self, found: Elf) -> bool:
        return bool(strings.named_libraries(self.data, found.sections, _CUDART_SAYS))

    def _with_code(
        self,
        facts: FileFacts,
        entries: Sequence[Entry],
        blobs: Sequence[embedded.Blob],
        kind: str,
        problem: str | None,
    ) -> FileFacts:
        modules, cubins = list(self._ptx(entries)), list(self._cubins(entries))
        for blob in blobs:
            if blob.architecture is None:
                modules.append(self._ptx_text(blob, len(modules) + 1))
            else:
                cubins.append(self._plain_cubin(blob, len(cubins) + 1))
        return structs.replace(
            facts,
            kind=kind,
            ptx=tuple(modules),
            cubins=tuple(cubins),
            other_code=sum(entry.kind is CodeKind.OTHER for entry in entries),
            problem=None if problem is None else problem.replace(str(self.path), self.base),
        )

    def _ptx(self, entries: Iterable[Entry]) -> Iterator[Ptx]:
        for number, entry in enumerate(_of_kind(entries, CodeKind.PTX), start=1):
            name = self._listed(entry, number, "ptx")
            try:
                text, problem = entry.content(), None
            except StackError as error:
                text, problem = b"", error.message.replace(str(self.path), self.base)
            yield self._module(
                text,
                name,
                section=entry.section,
                container=entry.container,
                architecture=entry.architecture,
                problem=problem,
            )

    def _ptx_text(self, blob: embedded.Blob, number: int) -> Ptx:
        text = self.data[blob.offset : blob.offset + blob.size].rstrip(b"\0")
        found = _TARGET.search(text[:_HEAD])
        target = found[2].decode() if found else "unknown"
        name = f"{self.stem}.{number}.{target}.ptx" if blob.section else self.base
        section = blob.section or None
        return self._module(text, name, section=section, container=None, architecture=target)

    def _module(
        self,
        text: bytes,
        name: str,
        *,
        section: str | None,
        container: int | None,
        architecture: str,
        problem: str | None = None,
    ) -> Ptx:
        found = _TARGET.search(text[:_HEAD])
        lacks: tuple[Miss, ...] = ()
        if found is None:
            problem = problem or f"{name} is not PTX: it has no .version and .target"
        else:
            lacks = self._lacks(text)
        return Ptx(
            name=name,
            section=section,
            container=container,
            architecture=architecture,
            version=found[1].decode() if found else None,
            target=found[2].decode() if found else None,
            bytes=len(text),
            kernels=text.count(b".entry "),
            misses=lacks,
            problem=problem,
        )

    def _lacks(self, text: bytes) -> tuple[Miss, ...]:
        """What ZLUDA does not take in a module; the same code for two targets is read once."""
        body = _TARGET_LINE.sub(b"", text[:_HEAD], count=1) + text[_HEAD:]
        key = hashlib.blake2b(body, digest_size=16).digest()
        if key not in self._misses:
            self._misses[key] = misses(self.world.known, text)
        return self._misses[key]

    def _cubins(self, entries: Sequence[Entry]) -> Iterator[Cubin]:
        places = Counter(
            (entry.section, entry.container) for entry in _of_kind(entries, CodeKind.PTX)
        )
        looked_into: defaultdict[tuple[str | None, int], int] = defaultdict(int)
        for number, entry in enumerate(_of_kind(entries, CodeKind.CUBIN), start=1):
            place = (entry.section, entry.container)
            kernels = None
            first = looked_into[place] == 0
            if place not in places and first and len(looked_into) <= _MOST_LOOKED_INTO:
                kernels = _kernels(entry)
            looked_into[place] += 1
            yield Cubin(
                name=self._listed(entry, number, "cubin"),
                section=entry.section,
                container=entry.container,
                architecture=entry.architecture,
                bytes=entry.size,
                kernels=kernels,
            )

    def _plain_cubin(self, blob: embedded.Blob, number: int) -> Cubin:
        raw = self.data[blob.offset : blob.offset + blob.size]
        return Cubin(
            name=f"{self.stem}.{number}.{blob.architecture}.cubin" if blob.section else self.base,
            section=blob.section or None,
            container=None,
            architecture=blob.architecture or "unknown",
            bytes=blob.size,
            kernels=embedded.kernels_in_cubin(raw),
        )

    def _listed(self, entry: Entry, number: int, suffix: str) -> str:
        """The name that cuobjdump lists: after the source where it is told, else the file's."""
        if entry.identifier:
            stem = PurePosixPath(entry.identifier).stem
            return f"{stem}.{entry.architecture}.{suffix}"
        return f"{self.stem}.{number}.{entry.architecture}.{suffix}"


def _is_searched(section: Section) -> bool:
    return (
        section.size > 0
        and section.name not in fatbin.SECTIONS
        and not section.name.startswith(_NOT_SEARCHED)
    )


def _outside(blobs: Iterable[embedded.Blob], entries: Iterable[Entry]) -> Iterator[embedded.Blob]:
    """The blobs that are not the payload of an entry, which has its own line."""
    taken = sorted((entry.offset, entry.offset + entry.stored_size) for entry in entries)
    for blob in blobs:
        before = bisect_right(taken, (blob.offset, sys.maxsize))
        if not before or taken[before - 1][1] <= blob.offset:
            yield blob


def _of_kind(entries: Iterable[Entry], kind: CodeKind) -> Iterator[Entry]:
    return (entry for entry in entries if entry.kind is kind)


def _kernels(entry: Entry) -> tuple[str, ...] | None:
    try:
        return embedded.kernels_in_cubin(entry.content())
    except StackError:
        return None


def _imports(world: World, found: Elf) -> Iterator[Function]:
    """Every function that a file imports from a library of CUDA, by name."""
    covered = {use.name: use for use in covering.cuda_symbols(world.coverage, found)}
    for symbol in found.imports:
        use = covered.get(symbol.name)
        by_name = world.libraries.with_function(symbol.name)
        others = use is None or (use.library is None and not _is_replaced(by_name))
        if use is not None and not others:
            yield Function(symbol.name, use.library or symbol.library, use.support)
            continue
        asked = world.libraries.named(symbol.library) if symbol.library else by_name
        if asked is not None:
            yield Function(symbol.name, symbol.library or f"{asked.files[0]}.so", None)


def _is_replaced(library: CudaLibrary | None) -> bool:
    return library is None or library.role is Role.REPLACED


def _looked_up(
    world: World, names: Iterable[str], needed: Sequence[str], opens: Iterable[str]
) -> Iterator[Function]:
    """The functions `names` with the libraries of ZLUDA that have them."""
    wanted = [covering.zluda_library(world.coverage, name) for name in (*needed, *sorted(opens))]
    order = dict.fromkeys([*filter(None, wanted), *world.coverage.libraries])
    for name in names:
        for library in order:
            functions = world.coverage.libraries[library]
            if name in functions.implemented or name in functions.not_implemented:
                done = name in functions.implemented
                support = Support.IMPLEMENTED if done else Support.NOT_IMPLEMENTED
                yield Function(name, library, support)
                break
