"""What a converter of CUDA sources to HIP says, and what it leaves in silence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct

from zluda_stack.catalog.porting import Porting, Severity
from zluda_stack.port.lexer import Source, read
from zluda_stack.port.source import Unportable, unportable

# hipify-perl writes FILE:LINE: warning: ...; hipify-clang FILE:LINE:COLUMN: warning: ...
_WARNING = re.compile(r"\s*\S.*?:(\d+):(?:\d+:)? warning: (.+)")
# How hipify-perl shows a line that still looks like CUDA when all is converted.
_LEFT = re.compile(r"\s*warning: .*?:#(\d+) : (.*)")
_CUDA_NAME = re.compile(r"\bcuda[A-Z]\w+")
_NAMES = "CONVERTED refs by names:"
_STATISTIC = re.compile(r"  (\S+)(?: => (\S+))?: (\d+)")
_HEADER = re.compile(r"[\w./-]+\.(?:h|hpp|cuh)")
# A macro, or a function with its body.
_DEFINITION = r"\#[^\S\n]*define\s+{0}\b|(?:[\w>*&]\s+|\*){0}\s*\([^;{{}}]*\)\s*\{{"

_NOTE = "// NOT CONVERTED, by the lines of the CUDA source:"
_NOTED = "//   line "
_WHOLE_NOTE = re.compile(rf"\A{re.escape(_NOTE)}\n(?:{_NOTED}[^\n]*\n)*".encode())

# The words of both converters, what they mean here, and how much is left to do. Sources:
# hipify-perl 7.0.2 (its print statements), src/HipifyAction.cpp of ROCm/HIPIFY.
_MEANINGS: tuple[tuple[re.Pattern[str], str, Severity, str], ...] = tuple(
    (re.compile(pattern), kind, severity, why)
    for pattern, kind, severity, why in (
        (
            r"unsupported device function \"([^\"]+)\"",
            "no-counterpart",
            Severity.NOT_CONVERTIBLE,
            "a function of the card without a counterpart in HIP",
        ),
        (
            r"unsupported device data type identifier: (\S+)",
            "no-counterpart",
            Severity.NOT_CONVERTIBLE,
            "a type of the card without a counterpart in HIP",
        ),
        (
            r"unsupported \w+ identifier: (\S+)",
            "no-counterpart",
            Severity.NOT_CONVERTIBLE,
            "the converter knows no counterpart",
        ),
        (
            r"'([^']+)' is unsupported (?:header )?in '",
            "no-counterpart",
            Severity.NOT_CONVERTIBLE,
            "the converter knows no counterpart",
        ),
        (
            r"experimental ROCm HIP identifier: (\S+)",
            "experimental",
            Severity.BY_HAND,
            "HIP has it as an experiment, which the converter takes only when asked to",
        ),
        (
            r"'([^']+)' is experimental in '",
            "experimental",
            Severity.BY_HAND,
            "HIP has it as an experiment, which the converter takes only when asked to",
        ),
        (
            r"Only '([^']+)_v2' version of",
            "first-version",
            Severity.BY_HAND,
            "only its second version is converted, where cublas_v2.h is included",
        ),
    )
)


_OF_CUDA = (".cu", ".cuh")
_INCLUDES_CUDA = re.compile(
    r"^[^\S\n]*#[^\S\n]*include[^\S\n]*[<\"]"
    r"(?:cuda|cu(?:blas|complex|dnn|fft|rand|solver|sparse)|cub/|nccl|nvrtc)",
    re.MULTILINE | re.IGNORECASE,
)


class Converted(Struct, frozen=True):
    """A name of CUDA that was converted, how often it stands in the source, and its library.

    `hip` is what became of it, empty where the converter does not tell.
    """

    cuda: str
    hip: str
    count: int
    library: str


class Conversion(Struct, frozen=True, kw_only=True):
    """What was converted, and the places that were not, by line.

    `to_do` are those that need work before the result compiles and does the same; `to_look_at`
    those that compile, and may do something else on an AMD card.
    """

    converted: tuple[Converted, ...]
    to_do: tuple[Unportable, ...]
    to_look_at: tuple[Unportable, ...]

    @property
    def by_library(self) -> dict[str, int]:
        """How many names were converted of each library, the most first."""
        counts: Counter[str] = Counter()
        for one in self.converted:
            counts[one.library] += one.count
        return dict(counts.most_common())


def conversion(source: str, told: str, facts: Porting) -> Conversion:
    """What the converter's words `told` and this program's own look at `source` come to.

    Nothing counts that stands in comments or literals, although hipify-perl converts that too.
    """
    parts = read(source)
    by_place: dict[tuple[int, str], Unportable] = {}
    # Of one place the first word stands: this program's own says more than the converter's.
    for one in (*unportable(source, facts), *_of_converter(told, parts)):
        by_place.setdefault((one.line, one.name), one)
    places = sorted(by_place.values(), key=lambda one: (one.line, one.kind, one.name))
    return Conversion(
        converted=tuple(_converted(told, source, facts)),
        to_do=tuple(one for one in places if one.severity is not Severity.LOOK_AT),
        to_look_at=tuple(one for one in places if one.severity is Severity.LOOK_AT),
    )


def is_to_convert(name: str, text: str) -> bool:
    """True for a file of CUDA's own kind, and for C or C++ that includes a header of CUDA's."""
    return name.endswith(_OF_CUDA) or _INCLUDES_CUDA.search(text) is not None


def note(conversion: Conversion) -> str:
    """What stands at the top of a result that is not whole, as C++ comments; else nothing."""
    if not conversion.to_do:
        return ""
    lines = (f"{_NOTED}{one.line}: {one.name}: {one.why}" for one in conversion.to_do)
    # A backslash at the end would draw the next line into the comment.
    return "".join(f"{line.rstrip(chr(92))}\n" for line in (_NOTE, *lines))


def without_note(text: bytes) -> bytes:
    """`text` without the note of an earlier conversion."""
    return _WHOLE_NOTE.sub(b"", text, count=1)


def _of_converter(told: str, source: Source) -> Iterator[Unportable]:
    lines = source.code.split("\n")
    for line in told.splitlines():
        warned = _WARNING.match(line)
        if warned is not None:
            number = int(warned[1])
            one = _meaning(number, warned[2])
            if one is not None and _stands(one.name, lines, number, source):
                yield one
            continue
        left = _LEFT.match(line)
        if left is not None:
            yield from _unknown(int(left[1]), left[2], lines, source.code)


def _meaning(line: int, words: str) -> Unportable | None:
    """What one warning means; None for one that asks for nothing, as that of a deprecated name."""
    for pattern, kind, severity, why in _MEANINGS:
        found = pattern.match(words)
        if found is not None:
            return Unportable(line, kind, found[1], severity, why, "")
    return None


def _stands(name: str, lines: list[str], number: int, source: Source) -> bool:
    """True when `name` is code in that line, or a header that is included."""
    if _HEADER.fullmatch(name):
        return any(header == name for _, header in source.includes)
    return (
        number <= len(lines) and re.search(rf"\b{re.escape(name)}\b", lines[number - 1]) is not None
    )


def _unknown(number: int, shown: str, lines: list[str], code: str) -> Iterator[Unportable]:
    """Names that look like CUDA's in a line of the result, and are not the program's own."""
    if number > len(lines):
        return
    for name in dict.fromkeys(_CUDA_NAME.findall(shown)):
        if re.search(rf"\b{name}\b", lines[number - 1]) and not _is_own(name, code):
            yield Unportable(
                number,
                "unknown",
                name,
                Severity.NOT_CONVERTIBLE,
                "the converter does not know it",
                "",
            )


def _is_own(name: str, code: str) -> bool:
    """True when the source itself defines `name`, as many do with a macro that checks errors."""
    return re.search(_DEFINITION.format(name), code) is not None


def _converted(told: str, source: str, facts: Porting) -> Iterator[Converted]:
    for line in _statistics(told.splitlines()):
        found = _STATISTIC.fullmatch(line)
        if found is None:
            continue
        cuda, hip = found[1], found[2] or ""
        if cuda == hip:
            continue
        # hipify-perl counts by the new name, which several old ones may share.
        count = len(re.findall(rf"\b{re.escape(cuda)}\b", source)) if hip else int(found[3])
        if count:
            yield Converted(cuda, hip, count, _library(cuda, facts))


def _statistics(lines: Iterable[str]) -> Iterator[str]:
    """The lines of the table of names."""
    inside = False
    for line in lines:
        if line.startswith("["):
            inside = line.rstrip().endswith(f"info: {_NAMES}")
        elif inside:
            yield line.rstrip()


def _library(cuda: str, facts: Porting) -> str:
    if _HEADER.fullmatch(cuda):
        return "headers"
    interface = facts.interface_of(cuda)
    return "others" if interface is None else interface.title
