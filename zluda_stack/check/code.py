"""The gaps of the device code in a file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from zluda_stack.check import gaps
from zluda_stack.check.facts import Cubin, FileFacts, Ptx
from zluda_stack.check.gaps import Gap, gap
from zluda_stack.check.ptx_misses import MissKind

_REBUILD = "Rebuild with PTX: -gencode arch=compute_80,code=compute_80."
_LINKED = "Rebuild without -rdc=true."
_SKIP = "Nothing, if these kernels are never called; else rebuild without it, or use ROCm."
_RELOCATABLE = "__nv_relfatbin"
_OBJECT = "relocatable"
_ARCHITECTURE = re.compile(r"sm_(\d+)([af]?)$")
_LEAVES_OUT = {MissKind.OPCODE, MissKind.FORM, MissKind.REGISTER}

_Place = tuple[str | None, int | None]


def code_gaps(facts: FileFacts, compute_capability: int) -> Iterator[Gap]:
    """What is wrong with the device code of a file, where ZLUDA reports that card (8.5 as 85)."""
    if not facts.ptx:
        yield from _without_ptx(facts)
        return
    yield from _unreadable(facts.ptx)
    containers = _containers(facts.ptx)
    if facts.kind != _OBJECT:
        parts = [module for module in facts.ptx if module.section == _RELOCATABLE]
        if parts:
            yield _relocatable(facts, parts)
            # A part that NVIDIA's tools add for their device run-time is for the newest card only.
            if all(_is_later(part.architecture, compute_capability) for part in parts):
                containers_of_parts = {one: own for one, own in containers.items() if _is_part(one)}
                yield from _wrong_cards(containers_of_parts, compute_capability)
        containers = {place: own for place, own in containers.items() if not _is_part(place)}
    yield from _wrong_cards(containers, compute_capability)
    yield from _lost_kernels(facts)
    yield from _misses([_chosen(modules) for modules in containers.values()])
    yield from _uncompiled(facts)


def _without_ptx(facts: FileFacts) -> Iterator[Gap]:
    code = [cubin for cubin in facts.cubins if cubin.kernels != ()]
    if code:
        cards = ", ".join(sorted({cubin.architecture for cubin in code}, key=_card_order))
        text = f"it holds machine code for NVIDIA's cards only ({cards}), which ZLUDA cannot use"
        kernels = tuple(name for cubin in code for name in cubin.kernels or ())
        yield gap(gaps.NO_PTX, cards, text, _REBUILD, used_by=kernels)
    elif facts.other_code:
        text = "its device code is for NVIDIA's link-time optimiser alone"
        yield gap(gaps.OTHER_CODE, "LTO-IR", text, _REBUILD)


def _unreadable(modules: Sequence[Ptx]) -> Iterator[Gap]:
    for module in modules:
        if module.problem is not None:
            yield gap(gaps.BAD_MODULE, module.name, module.problem, "Copy or download it again.")


def _uncompiled(facts: FileFacts) -> Iterator[Gap]:
    target = facts.compiled_for or ""
    for one in facts.uncompiled:
        text = f"{one.module} does not fully compile for {target}: {one.problem}"
        users = (one.kernels,) if one.kernels else ()
        yield gap(gaps.NOT_COMPILED, one.module, text, _SKIP, used_by=users, of=target)


def _containers(modules: Sequence[Ptx]) -> dict[_Place, list[Ptx]]:
    """Modules that are the same code for several cards, by their fat binary."""
    found: dict[_Place, list[Ptx]] = {}
    for number, module in enumerate(modules, start=1):
        # A text of its own is no alternative to any other.
        place = (module.section, -number if module.container is None else module.container)
        found.setdefault(place, []).append(module)
    return found


def _chosen(modules: Sequence[Ptx]) -> Ptx:
    """The module that ZLUDA takes: of those with the fewest functions left out, the last.

    (get_best_ptx_and_compile in zluda/src/impl/module.rs at 8a7931be)
    """
    return min(reversed(modules), key=_left_out)


def _left_out(module: Ptx) -> int:
    lost = {name for miss in module.misses if miss.kind in _LEAVES_OUT for name in miss.functions}
    return len(lost) if module.problem is None else module.kernels + len(lost) + 1


def _wrong_cards(containers: dict[_Place, list[Ptx]], compute_capability: int) -> Iterator[Gap]:
    later: list[tuple[int, Ptx]] = []
    specific: list[Ptx] = []
    for modules in containers.values():
        cards = [(*_card(module.architecture), module) for module in modules]
        if any(number <= compute_capability and not only for number, only, _ in cards):
            continue
        open_ended = [(number, module) for number, only, module in cards if not only]
        if open_ended:
            later.append(min(open_ended, key=lambda one: one[0]))
        else:
            specific.extend(module for _, _, module in cards)
    if later:
        need = max(number for number, _ in later)
        cards_named = ", ".join(sorted({m.architecture for _, m in later}, key=_card_order))
        text = (
            f"in {_of(len(later), len(containers))} the PTX is for {cards_named} and later only, "
        )
        text += f"and ZLUDA reports {_dotted(compute_capability)}: no code for this device"
        fix = f"Set ZLUDA_CC={_dotted(need)}, or rebuild for compute_80 too."
        yield gap(gaps.TOO_NEW, cards_named, text, fix)
    if specific:
        cards_named = ", ".join(sorted({m.architecture for m in specific}, key=_card_order))
        text = f"PTX for {cards_named} is meant for that card alone and may use what only it has"
        yield gap(gaps.ONE_CARD, cards_named, text, _REBUILD)


def _relocatable(facts: FileFacts, parts: Sequence[Ptx]) -> Gap:
    """Parts of a program that NVIDIA's driver links when it loads them.

    ZLUDA does not: of all parts it takes one (module.rs at 8a7931be goes through the list of a
    fat binary wrapper of version 2 and compiles a single module).
    """
    text = f"PTX modules ({len(parts)}) are to be linked when they are loaded"
    text += " (-rdc=true), and ZLUDA takes one of them alone"
    kernels = sorted({name for cubin in facts.cubins for name in cubin.kernels or ()})
    return gap(gaps.RELOCATABLE, _RELOCATABLE, text, _LINKED, used_by=tuple(kernels))


def _lost_kernels(facts: FileFacts) -> Iterator[Gap]:
    """Fat binaries without PTX, where others have it. Relocatable code is told of elsewhere."""
    if any(module.section == _RELOCATABLE for module in facts.ptx):
        return
    lost: dict[_Place, Cubin] = {}
    have = {(module.section, module.container) for module in facts.ptx}
    for cubin in facts.cubins:
        place = (cubin.section, cubin.container)
        if cubin.container is not None and place not in have:
            lost.setdefault(place, cubin)
    code = [cubin for cubin in lost.values() if cubin.kernels != ()]
    if code:
        total = len(lost) + len(_containers(facts.ptx))
        text = f"in {_of(len(code), total)} there is machine code for NVIDIA's cards and no PTX"
        kernels = tuple(name for cubin in code for name in cubin.kernels or ())
        yield gap(gaps.LOST_KERNELS, "fat binaries", text, _REBUILD, used_by=kernels)


def _misses(modules: Sequence[Ptx]) -> Iterator[Gap]:
    users: defaultdict[tuple[MissKind, str], dict[str, None]] = defaultdict(dict)
    for module in modules:
        for miss in module.misses:
            users[miss.kind, miss.what].update(dict.fromkeys(miss.functions))
    for (kind, what), functions in users.items():
        names = tuple(functions)
        if kind is MissKind.OPCODE:
            text = f"the instruction {what} is unknown to ZLUDA, which leaves its kernels out"
            yield gap(gaps.OPCODE, what, text, _SKIP, used_by=names)
        elif kind is MissKind.FORM:
            text = f"{what} is a form that ZLUDA does not know, and leaves its kernels out"
            yield gap(gaps.FORM, what, text, _SKIP, used_by=names)
        else:
            lost = "the module" if kind is MissKind.MODULE_REGISTER else "its kernels"
            text = f"the register {what} is unknown to ZLUDA, which leaves {lost} out"
            yield gap(gaps.REGISTER, what, text, _SKIP, used_by=names)


def _is_part(place: _Place) -> bool:
    return place[0] == _RELOCATABLE


def _is_later(architecture: str, compute_capability: int) -> bool:
    return _card(architecture)[0] > compute_capability


def _card(architecture: str) -> tuple[int, bool]:
    """The number of an architecture (85 for sm_85), and whether its code is for it alone."""
    found = _ARCHITECTURE.match(architecture)
    return (int(found[1]), bool(found[2])) if found else (0, False)


def _card_order(architecture: str) -> tuple[int, str]:
    return _card(architecture)[0], architecture


def _dotted(capability: int) -> str:
    return f"{capability // 10}.{capability % 10}"


def _of(part: int, whole: int) -> str:
    return "all fat binaries" if part == whole else f"{part} of {whole} fat binaries"
