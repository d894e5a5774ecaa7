"""Names among the strings of a program: libraries that it opens and functions that it looks up."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from mmap import mmap

from zluda_stack.cuda.elf import Section

# Where compilers put strings; code, symbol tables and device code are left out.
_HOLDS_STRINGS = (".rodata", ".lrodata", ".data", ".ldata")
_BLOCK = 16 << 20
_LONGEST = 256
# A pattern that begins with plain letters is found faster than one with a choice of them.
_FUNCTIONS = tuple(
    re.compile(start + rb"(?<=\0" + start + rb")\w{2,120}(?=\0)") for start in (rb"cu", rb"nvml")
)


def of_libraries(stems: Iterable[str]) -> re.Pattern[bytes]:
    """A pattern for the file names of libraries that are called like one of `stems`."""
    names = "|".join(re.escape(stem.removeprefix("lib")) for stem in stems)
    return re.compile(rf"lib(?:{names})\.so(?:\.\d+)*(?![\w.])".encode())


def named_libraries(
    data: mmap, sections: Iterable[Section], pattern: re.Pattern[bytes]
) -> frozenset[str]:
    """The file names of libraries that stand in the strings of a program."""
    return frozenset(_found(data, sections, pattern))


def named_functions(
    data: mmap, sections: Sequence[Section], known: Collection[str]
) -> frozenset[str]:
    """Those of the functions `known` whose name is a string of its own in a program."""
    named = (_found(data, sections, pattern) for pattern in _FUNCTIONS)
    return frozenset().union(*named) & frozenset(known)


def _found(data: mmap, sections: Iterable[Section], pattern: re.Pattern[bytes]) -> set[str]:
    """Every match in the sections that hold strings, read in blocks that overlap a little."""
    found: set[bytes] = set()
    for section in sections:
        if section.name.startswith(_HOLDS_STRINGS):
            end = section.offset + section.size
            for start in range(section.offset, end, _BLOCK):
                found.update(pattern.findall(data[start : min(start + _BLOCK + _LONGEST, end)]))
    return {name.decode() for name in found}
