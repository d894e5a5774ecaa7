"""What the facts of a file mean for running it on ZLUDA: its gaps and its verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from pathlib import PurePosixPath

from msgspec import Struct, structs

from zluda_stack.catalog.coverage import Coverage
from zluda_stack.catalog.cuda import CudaLibraries, CudaLibrary, Role
from zluda_stack.check import gaps
from zluda_stack.check.closure import Need, Origin
from zluda_stack.check.code import code_gaps
from zluda_stack.check.facts import FileFacts, Function
from zluda_stack.check.gaps import Gap, Severity, gap
from zluda_stack.cuda.coverage import Support

_NATIVE = "Use a native ROCm build of the program instead."
_WITHOUT = "Nothing, if the program never calls it; else a native ROCm build."


class Verdict(str, Enum):
    """What is to be expected, worst first; REPLACED and NO_CUDA ask nothing of ZLUDA."""

    CANNOT = "cannot run"
    UNJUDGED = "cannot be judged"
    GAPS = "may run, with gaps"
    LIKELY = "will likely run"
    REPLACED = "replaced by ZLUDA"
    NO_CUDA = "no CUDA in it"


class Judged(Struct, frozen=True):
    """One file, what is wrong with it, and what follows."""

    facts: FileFacts
    needs: tuple[Need, ...]
    gaps: tuple[Gap, ...]
    verdict: Verdict


class Basis(Struct, frozen=True):
    """What files are judged by; `compute_capability` is what ZLUDA reports, 8.5 as 85.

    `demangle` turns kernels' names into what people wrote.
    """

    coverage: Coverage
    libraries: CudaLibraries
    compute_capability: int
    demangle: Callable[[Iterable[str]], dict[str, str]]


def judge(basis: Basis, facts: FileFacts, needed: tuple[Need, ...], *, asked: bool) -> Judged:
    """The gaps and the verdict of one file; `asked` when the user named it by itself."""
    own = _own_library(basis, facts)
    if own is not None and own.role in {Role.REPLACED, Role.INSIDE} and facts.problem is None:
        note = gap(gaps.REPLACED, own.title, f"{own.title} is ZLUDA's own", "Nothing.")
        return Judged(facts, needed, (note,), Verdict.REPLACED)
    found = [*_file_gaps(facts)]
    if not any(one.severity is Severity.CANNOT for one in found):
        code = code_gaps(facts, basis.compute_capability)
        found += [*code, *_function_gaps(basis, facts), *_library_gaps(basis, facts, needed)]
    has_cuda = _has_cuda(basis, facts, needed)
    verdict = _verdict(found, matters=asked or has_cuda, has_cuda=has_cuda)
    return Judged(facts, needed, _readable(basis, found), verdict)


def overall(judged: Sequence[Judged], required: Iterable[str]) -> Verdict:
    """The verdict on all files together.

    Of a folder, a wheel or an image a part may be left unused, so that one file that cannot run
    is a gap of the whole, unless no other file holds device code, and so is one that cannot be
    judged beside others that can. A file in `required`, which the user named, must run.
    """
    named = set(required)
    found = {one.verdict for one in judged}
    wanted = {one.verdict for one in judged if one.facts.name in named}
    usable = {Verdict.GAPS, Verdict.LIKELY}
    with_code = {one.verdict for one in judged if one.facts.ptx or one.facts.cubins}
    for verdict, others in ((Verdict.CANNOT, with_code), (Verdict.UNJUDGED, found)):
        if verdict in wanted or (verdict in found and not others & usable):
            return verdict
    if found & {Verdict.CANNOT, Verdict.UNJUDGED, Verdict.GAPS}:
        return Verdict.GAPS
    order = (Verdict.LIKELY, Verdict.REPLACED)
    return next((verdict for verdict in order if verdict in found), Verdict.NO_CUDA)


def _verdict(found: Sequence[Gap], *, matters: bool, has_cuda: bool) -> Verdict:
    severities = {one.severity for one in found}
    if Severity.CANNOT in severities and matters:
        return Verdict.CANNOT
    if Severity.UNJUDGED in severities:
        return Verdict.UNJUDGED
    if not has_cuda:
        return Verdict.NO_CUDA
    return Verdict.GAPS if Severity.GAP in severities else Verdict.LIKELY


def _has_cuda(basis: Basis, facts: FileFacts, needed: Sequence[Need]) -> bool:
    of_cuda = any(basis.libraries.named(need.library) for need in needed)
    code = facts.ptx or facts.cubins or facts.other_code
    return bool(code or facts.imports or facts.opens or facts.static_cudart or of_cuda)


def _own_library(basis: Basis, facts: FileFacts) -> CudaLibrary | None:
    return basis.libraries.named(facts.soname or PurePosixPath(facts.name).name)


def _readable(basis: Basis, found: Sequence[Gap]) -> tuple[Gap, ...]:
    """The gaps with the names of kernels as people wrote them, the worst first."""
    plain = basis.demangle(name for one in found for name in one.used_by)
    order = list(Severity)
    named = (
        structs.replace(one, used_by=tuple(plain.get(name, name) for name in one.used_by))
        for one in found
    )
    return tuple(sorted(named, key=lambda one: (order.index(one.severity), one.id, one.subject)))


def _file_gaps(facts: FileFacts) -> Iterator[Gap]:
    if facts.problem is not None:
        fix = "Check its permissions." if facts.unreadable else "Copy or download it again."
        yield gap(gaps.UNREADABLE, PurePosixPath(facts.name).name, facts.problem, fix)
    if facts.machine not in {None, "x86_64", "CUDA"} or facts.bits == 32:
        machine = f"{facts.machine} ({facts.bits} bits)"
        yield gap(
            *(gaps.OTHER_MACHINE, machine, f"it is built for {machine}, ZLUDA for x86_64"),
            "Take the build of the program for Linux on x86_64.",
        )
    if facts.interpreter is not None and "musl" in facts.interpreter:
        yield gap(
            *(gaps.NOT_GLIBC, facts.interpreter, "it is built for musl, and ZLUDA needs glibc"),
            "Take the build for a distribution with glibc (Debian, Ubuntu, Fedora).",
        )


def _function_gaps(basis: Basis, facts: FileFacts) -> Iterator[Gap]:
    used = [use for use in facts.imports if use.support is not None]
    empty = _empty_libraries(basis)
    for library, names in _by_library(use for use in used if use.library in empty).items():
        yield _empty(library, names)
    for use in used:
        if use.support is Support.NOT_IMPLEMENTED and use.library not in empty:
            text = f"{use.name} of {use.library} is not implemented: it returns an error"
            yield gap(gaps.NOT_IMPLEMENTED, use.name, text, _WITHOUT, of=use.library or "")
        elif use.support is Support.UNKNOWN:
            text = f"{use.name} is not exported by ZLUDA: the program stops where it is bound"
            yield gap(gaps.NOT_EXPORTED, use.name, text, _NATIVE)
    yield from _looked_up_gaps(basis, facts)


def _looked_up_gaps(basis: Basis, facts: FileFacts) -> Iterator[Gap]:
    """What a static CUDA runtime asks the driver for is asked for by name, needed or not."""
    own = _own_library(basis, facts)
    is_runtime = own is not None and own.role is Role.RUNTIME
    if facts.static_cudart or is_runtime:
        lacking = [use for use in facts.looks_up if use.support is not Support.IMPLEMENTED]
        total = len(facts.looks_up)
        what = (
            "the CUDA runtime asks" if is_runtime else "the CUDA runtime is linked in, which asks"
        )
        text = f"{what} the driver for all of its functions by name"
        if total:
            text += f": ZLUDA implements {total - len(lacking)} of the {total} that it names"
        fix = (
            "Nothing: what is missing shows when the program calls the runtime function behind it."
        )
        yield gap(gaps.STATIC_CUDART, "libcudart", text, fix)
        return
    for library, names in _by_library(
        use for use in facts.looks_up if use.support is Support.NOT_IMPLEMENTED
    ).items():
        text = f"it may look up {_listed(names)} of {library}, not implemented by ZLUDA"
        yield gap(gaps.LOOKED_UP, library, text, _WITHOUT)


def _empty_libraries(basis: Basis) -> set[str]:
    return {name for name, has in basis.coverage.libraries.items() if not has.implemented}


def _empty(library: str, names: Sequence[str]) -> Gap:
    text = f"ZLUDA has {library} in name only: {_listed(names)} return errors"
    return gap(gaps.EMPTY_LIBRARY, library, text, _WITHOUT)


def _by_library(uses: Iterable[Function]) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for use in uses:
        found[use.library or "any library"].append(use.name)
    return found


def _listed(names: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _library_gaps(basis: Basis, facts: FileFacts, needed: Sequence[Need]) -> Iterator[Gap]:
    told: set[str] = set()
    for need in needed:
        library = basis.libraries.named(need.library)
        if library is None and need.origin is Origin.MISSING:
            text = f"{need.library} is not among what was given"
            yield gap(gaps.NOT_GIVEN, need.library, text, "Give its folder too to have it checked.")
        elif library is not None and need.origin is not Origin.GIVEN:
            told.add(library.title)
            yield from _library_gap(facts, library, need.library, "it needs")
        elif library is not None:
            told.add(library.title)
    for name in facts.opens:
        library = basis.libraries.named(name)
        if library is not None and library.title not in told:
            told.add(library.title)
            yield from _library_gap(facts, library, name, "it may open")


def _library_gap(facts: FileFacts, library: CudaLibrary, name: str, how: str) -> Iterator[Gap]:
    what = f"{how} {name} ({library.title})"
    if library.role is Role.ON_DRIVER:
        text = f"{what}, which ZLUDA does not replace: NVIDIA's own runs if it holds PTX"
        yield gap(gaps.OWN_CODE, name, text, f"Give the file of {library.title} to check it too.")
    elif library.role is Role.DRIVER_PART:
        yield gap(gaps.DRIVER_PART, name, f"{what}, for which there is no stand-in", _WITHOUT)
    elif library.role is Role.COMPILER:
        asks = {use.name for use in facts.imports if use.name.startswith("nvrtcGet")}
        if library.files == ("libnvrtc",) and asks and "nvrtcGetCUBIN" not in asks:
            return
        text = f"{what}: what it makes for NVIDIA's cards cannot be loaded, PTX can"
        yield gap(gaps.COMPILES, name, text, "Have the program ask for PTX, if it can.")
