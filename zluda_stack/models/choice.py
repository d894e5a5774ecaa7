"""Which files of a repository are the model that somebody asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable

from zluda_stack.errors import UsageError
from zluda_stack.models.reference import HubPlace, all_parts

# What Ollama and llama.cpp's -hf take where nothing is said.
_USUAL = ("Q4_K_M", "Q8_0")
_MODEL = re.compile(r"\.gguf$", re.IGNORECASE)
# Projectors of pictures and speech, and the data of an importance matrix: no models.
_BESIDE = re.compile(r"(^|[-_./])(mmproj|imatrix)", re.IGNORECASE)
_QUANTISATION = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|MXFP4\w*|NVFP4\w*|BF16|FP?16|F32))"
    r"(?=[-./]|$)",
    re.IGNORECASE,
)


def choose(files: Iterable[str], place: HubPlace) -> tuple[str, ...]:
    """The files, in order, of the model that `place` means among the repository's `files`.

    Raises UsageError, with what there is, where none or more than one fits.
    """
    models = _models(files)
    if place.quantisation is not None:
        return _only(_of(models, place.quantisation), models, place)
    if len(models) == 1:
        return models[0]
    for usual in _USUAL:
        found = _of(models, usual)
        if found:
            return _only(found, models, place)
    return _only((), models, place)


def quantisation_of(file: str) -> str | None:
    """The quantisation that the name of a file tells, in capitals."""
    found = _QUANTISATION.findall(re.sub(r"(-\d{5}-of-\d{5})?\.gguf$", "", file))
    return str(found[-1]).upper() if found else None


def _models(files: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """The models among `files`, each with all its parts; one that lacks parts is none."""
    there = sorted(
        name
        for name in files
        if _MODEL.search(name) and not _BESIDE.search(name) and name.isprintable()
    )
    whole = dict.fromkeys(all_parts(name) for name in there)
    return tuple(parts for parts in whole if set(parts) <= set(there))


def _of(models: tuple[tuple[str, ...], ...], wish: str) -> tuple[tuple[str, ...], ...]:
    return tuple(parts for parts in models if quantisation_of(parts[0]) == wish.upper())


def _only(
    found: tuple[tuple[str, ...], ...], models: tuple[tuple[str, ...], ...], place: HubPlace
) -> tuple[str, ...]:
    if len(found) == 1:
        return found[0]
    if not models:
        raise UsageError(
            f"{place.repository} holds no GGUF file",
            "Its makers or others may have put GGUF files in a repository of their own.",
        )
    wish = place.quantisation or "no quantisation that is usual"
    if found:
        names = ", ".join(parts[0] for parts in found)
        raise UsageError(
            f"{place.repository} has {wish} in several files: {names}",
            f"Name one: hf:{place.repository}/{found[0][0]}",
        )
    kinds = sorted({kind for parts in models if (kind := quantisation_of(parts[0]))})
    names = ", ".join(kinds) or ", ".join(parts[0] for parts in models)
    raise UsageError(
        f"{place.repository} has {wish}"
        if place.quantisation is None
        else f"{place.repository} does not have {wish}",
        f"It has {names}. One is named so: hf:{place.repository}:{(kinds or ['Q4_K_M'])[0]}",
    )
