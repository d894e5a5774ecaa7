"""C++ text without its comments and the contents of its literals, every line where it was."""

from __future__ import annotations

import re
from bisect import bisect_right

from msgspec import Struct

_TOKEN = re.compile(
    r"""
    (?P<header> (?<=\binclude) [^\S\n]* (?: <[^>\n]*> | "[^"\n]*" ) )
  | (?P<comment> // (?: \\\r?\n | [^\n] )* | /\* .*? (?: \*/ | \Z ) )
  | (?P<raw> (?: u8 | [uUL] )? R" (?P<fence> [^()\\\s]{0,16} ) \( .*? (?: \) (?P=fence) " | \Z ) )
  | (?P<string> (?: u8 | [uUL] )? " (?: \\. | [^"\\\n] )* (?: " | (?=\n) | \Z ) )
  | (?P<char> (?: u8 | [uUL] )? ' (?: \\. | [^'\\\n] )* (?: ' | (?=\n) | \Z ) )
  | [A-Za-z_]\w*
  | \.?\d (?: [eEpP][+-] | '?[\w.] )*
    """,
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:\r?\n|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_BREAK = re.compile("\n")
_NOT_A_NEWLINE = re.compile(r"[^\n]")


class Literal(Struct, frozen=True):
    """A string literal: where it begins and ends in the text, and what it says."""

    start: int
    end: int
    value: str


class Source(Struct, frozen=True):
    """A text and its parts.

    `code` is as long as `text` and has its line breaks. Comments are blanks in it; of a literal
    the quotes are left. `includes` are (place, name) of all headers.
    """

    text: str
    code: str
    literals: tuple[Literal, ...]
    includes: tuple[tuple[int, str], ...]
    breaks: tuple[int, ...]

    @property
    def lines(self) -> int:
        """How many lines there are; what is behind the last break is one too."""
        return len(self.breaks) + (self.text != "" and not self.text.endswith("\n"))

    def line(self, place: int) -> int:
        """The number of the line, from 1, in which the character `place` is."""
        return bisect_right(self.breaks, place) + 1


def read(text: str) -> Source:
    """`text` in its parts. Any text can be read; a literal that is not closed ends its line."""
    pieces: list[str] = []
    literals: list[Literal] = []
    includes: list[tuple[int, str]] = []
    done = 0
    for found in _TOKEN.finditer(text):
        kind, start, end = found.lastgroup, found.start(), found.end()
        if kind is None:
            continue
        if kind == "header":
            includes.append((start, found[0].strip()[1:-1].strip()))
        pieces += (text[done:start], _blank(found[0], quoted=kind not in ("comment", "header")))
        done = end
        if kind in ("raw", "string"):
            literals.append(Literal(start, end, _value(found)))
    pieces.append(text[done:])
    return Source(
        text=text,
        code="".join(pieces),
        literals=tuple(literals),
        includes=tuple(includes),
        breaks=tuple(found.end() for found in _BREAK.finditer(text)),
    )


def _blank(token: str, *, quoted: bool) -> str:
    blank = _NOT_A_NEWLINE.sub(" ", token)
    if not quoted or len(token) < 2 or token[-1] not in "\"'":
        return blank
    return '"' + blank[1:-1] + '"'


def _value(found: re.Match[str]) -> str:
    if found["raw"]:
        fence = found["fence"]
        inner = found["raw"].partition("(")[2]
        return inner.removesuffix(f'){fence}"')
    inner = found["string"].partition('"')[2].removesuffix('"')
    return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[0][1:], escape[0][1:]), inner)
