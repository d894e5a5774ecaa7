"""Gate `kernels`: the compiled kernels of rocBLAS and hipBLASLt.

Both libraries keep one index per gfx target, TensileLibrary_lazy_TARGET.dat (MessagePack), in
their folder `library` or in a folder of the target's name there. The index names the libraries
that are loaded when first needed: NAME.dat says which kernel suits which matrices, NAME.co or
NAME.hsaco holds the kernels; for a NAME that ends with _fallback and serves every target, the
kernels are in NAME_TARGET.hsaco. Without the index, rocBLAS ends the program at its first matrix
product (library/src/tensile_host.cpp of ROCm/rocBLAS, read 2026-11-30; the names are those of
Debian's librocblas4 6.4.4-4 and libhipblaslt1 7.1.1+dfsg-4).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from zluda_stack.errors import HostProblem, UsageError
from zluda_stack.gates.verdict import Finding, Verdict, counted

# gfx90a-xnack+ and the like belong to their target; gfx11-generic serves many and is kept.
_TARGET = re.compile(r"gfx[0-9]{1,2}[0-9a-f]{2}(?![0-9a-f])")
_LAZY_INDEX = "TensileLibrary_lazy_{}.dat"
_WHOLE_INDEX = "TensileLibrary_{}.dat"
_CODE = (".co", ".hsaco")
_FALLBACK = "_fallback"
# gfx90a can retry page faults or not; where the code is for one of both, there is a file for each.
_MODES = ("-xnack+", "-xnack-")
_HINT = "Take a target that this library was built for, or one whose fallback the catalogue names."


def is_target(text: str) -> bool:
    """Whether `text` is the name of a gfx target, such as gfx1100."""
    return _TARGET.fullmatch(text) is not None


class Kernels(Struct, frozen=True):
    """What a library's folder holds for one target; `missing` names files that its index wants."""

    target: str
    libraries: int
    missing: tuple[str, ...]


def kernels_for(folder: Path, target: str) -> Kernels | None:
    """The kernels for `target` under `folder`; None when no index is there.

    Raises UsageError when the index is damaged, HostProblem when it cannot be read.
    """
    index = _first(folder, _LAZY_INDEX.format(target))
    if index is not None:
        names = _named(index)
        missing = [file for name in names for file in _missing(index.parent, name, target)]
        return Kernels(target, len(names), tuple(missing))
    index = _first(folder, _WHOLE_INDEX.format(target))
    if index is None:
        return None
    code = [path for path in index.parent.glob(f"*{target}*") if path.suffix in _CODE]
    return Kernels(target, len(code), () if code else (f"*{target}*co",))


def check(
    *,
    target: str,
    fallback: str | None,
    rocblas: Path,
    hipblaslt: Path | None = None,
    hipblaslt_needed: bool = False,
) -> Verdict:
    """Whether rocBLAS, and hipBLASLt if asked for, can compute on `target` or its `fallback`.

    The fallback counts only where the target has no kernels of its own: with the catalogue's
    override the card then poses as the fallback target.
    """
    findings, taken = [], {}
    reasons = []
    libraries = [("rocBLAS", rocblas, True)]
    if hipblaslt is not None:
        libraries.append(("hipBLASLt", hipblaslt, hipblaslt_needed))
    for name, folder, needed in libraries:
        found = kernels_for(folder, target) or (fallback and kernels_for(folder, fallback)) or None
        if found is None:
            problem = f"has no kernels for {' or '.join(filter(None, (target, fallback)))}"
            findings.append(Finding(name, f"{problem} in {folder}", accepted=not needed))
            reasons.extend([f"{name} {problem}"] if needed else [])
            continue
        taken[name] = found
        findings.extend(Finding(name, f"lacks {file}") for file in found.missing)
        if found.missing:
            missing = counted(len(found.missing), "file")
            reasons.append(f"{name} lacks {missing} of its kernels for {found.target}")
        elif found.target != target:
            problem = f"has no kernels for {target}; those of {found.target} are taken"
            findings.append(Finding(name, problem, accepted=True))
    summary = ", ".join(
        f"{name} has {counted(found.libraries, 'library', 'libraries')} for {found.target}"
        for name, found in taken.items()
    )
    reason = "; ".join(reasons) or None
    return Verdict(
        gate="kernels",
        checked=sum(found.libraries for found in taken.values()),
        summary=reason or summary,
        reason=reason,
        hint=_HINT,
        findings=tuple(findings),
        facts={"target": target, **{name: found.target for name, found in taken.items()}},
    )


def _first(folder: Path, name: str) -> Path | None:
    return min(folder.rglob(name), default=None)


def _named(index: Path) -> list[str]:
    """The names of the libraries that an index loads when they are first needed."""
    try:
        return sorted(set(_placeholders(msgspec.msgpack.decode(index.read_bytes()))))
    except OSError as error:
        raise HostProblem(
            f"cannot read {index}: {error.strerror}", "Check the folder's permissions."
        ) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(
            f"{index} is damaged: {error}", "Install the library's package again."
        ) from error


def _placeholders(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if node.get("type") == "Placeholder" and isinstance(node.get("value"), str):
            yield node["value"]
        for inner in node.values():
            yield from _placeholders(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from _placeholders(inner)


def _missing(folder: Path, name: str, target: str) -> Iterator[str]:
    if not (folder / f"{name}.dat").is_file():
        yield f"{name}.dat"
    code = f"{name}_{target}" if name.endswith(_FALLBACK) else name
    if not _holds(folder, code) and not all(_holds(folder, code + mode) for mode in _MODES):
        yield f"{code}.hsaco" if code != name else f"{code}.co"


def _holds(folder: Path, code: str) -> bool:
    return any((folder / f"{code}{suffix}").is_file() for suffix in _CODE)
