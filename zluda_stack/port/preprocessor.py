"""Lines that a HIP build leaves out, by the conditions of the preprocessor around them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

Truth: TypeAlias = "bool | None"
Known: TypeAlias = Callable[[str], Truth]

_DIRECTIVE = re.compile(
    r"^[^\S\n]*\#[^\S\n]*(ifdef|ifndef|if|elifdef|elifndef|elif|else|endif)\b"
    r"((?:\\\r?\n|[^\n])*)",
    re.MULTILINE,
)
_WORD = re.compile(r"\|\||&&|!=|[!()]|\w+|[^\s\w]+")
_NOT_A_NEWLINE = re.compile(r"[^\n]")
_NUMBER = re.compile(r"\d+[uUlL]*")
_NAME = re.compile(r"[A-Za-z_]\w*")
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_DEEPEST = 100


class _Branch(Struct):
    """An #if that is open: is its branch taken, was one before it, and was it all left out.

    None is "not known".
    """

    taken: Truth
    before: Truth
    outside_dead: bool


def left_out(code: str, known: Known) -> tuple[tuple[int, int], ...]:
    """The parts of `code` (from, to) that are left out, in order.

    `code` has no comments. `known` says of a macro whether it is defined; None is not known, and
    so is every condition that hangs on such a macro or on another value: what it guards stays.
    """
    dead: list[tuple[int, int]] = []
    open_: list[_Branch] = []
    begun: int | None = None
    for found in _DIRECTIVE.finditer(code):
        was_dead = _is_dead(open_)
        _step(open_, found[1], found[2], known)
        now_dead = _is_dead(open_)
        if now_dead and not was_dead:
            begun = found.end()
        elif was_dead and not now_dead and begun is not None:
            dead.append((begun, found.start()))
            begun = None
    if begun is not None:
        dead.append((begun, len(code)))
    return tuple(dead)


def first_branches(code: str) -> str:
    """`code` with blanks for all but the first branch of each #if, so that its braces are pairs."""
    pieces: list[str] = []
    first: list[bool] = []
    begun = 0
    for found in _DIRECTIVE.finditer(code):
        pieces.append(code[begun : found.start()] if all(first) else _blank(code, begun, found))
        begun = found.start()
        if found[1] in ("if", "ifdef", "ifndef"):
            first.append(True)
        elif first and found[1] == "endif":
            first.pop()
        elif first:
            first[-1] = False
    return "".join(pieces) + code[begun:]


def _blank(code: str, begun: int, until: re.Match[str]) -> str:
    return _NOT_A_NEWLINE.sub(" ", code[begun : until.start()])


def _is_dead(open_: Sequence[_Branch]) -> bool:
    return bool(open_) and (open_[-1].outside_dead or open_[-1].taken is False)


def _step(open_: list[_Branch], directive: str, condition: str, known: Known) -> None:
    if directive in ("if", "ifdef", "ifndef"):
        taken = _value(directive, condition, known)
        open_.append(_Branch(taken=taken, before=False, outside_dead=_is_dead(open_)))
    elif not open_:
        return
    elif directive == "endif":
        open_.pop()
    else:
        branch = open_[-1]
        branch.before = _or(branch.before, branch.taken)
        own = True if directive == "else" else _value(directive, condition, known)
        branch.taken = _and(_not(branch.before), own)


def _value(directive: str, condition: str, known: Known) -> Truth:
    words = _WORD.findall(condition.replace("\\", " "))
    if directive.endswith("ifdef"):
        return known(words[0]) if words else None
    if directive.endswith("ifndef"):
        return _not(known(words[0])) if words else None
    return _Condition(words, known).value()


class _Condition:
    """A condition, as far as it is made of defined(...), numbers, comparisons, !, && and ||."""

    def __init__(self, words: Sequence[str], known: Known) -> None:
        self._words = words
        self._known = known
        self._at = 0
        self._depth = 0

    def value(self) -> Truth:
        """What it comes to; None where that cannot be told."""
        found = self._any()
        return found if self._at == len(self._words) else None

    def _next(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _any(self) -> Truth:
        found = self._all()
        while self._next() == "||":
            self._at += 1
            found = _or(found, self._all())
        return found

    def _all(self) -> Truth:
        found = self._one()
        while self._next() == "&&":
            self._at += 1
            found = _and(found, self._one())
        return found

    def _one(self) -> Truth:
        word = self._next()
        self._at += 1
        if word == "!":
            return self._deeper(lambda: _not(self._one()))
        if word == "(":
            found = self._deeper(self._bracketed)
        elif word == "defined":
            found = self._defined()
        else:
            return self._compared(self._number(word))
        return None if self._skip_to_operator() else found

    def _number(self, word: str) -> int | None:
        """What a word stands for in a condition; a macro that is not defined is 0 there."""
        if _NUMBER.fullmatch(word):
            return int(word.rstrip("uUlL"))
        return 0 if _NAME.fullmatch(word) and self._known(word) is False else None

    def _compared(self, left: int | None) -> Truth:
        compare = _COMPARE.get(self._next())
        if compare is None:
            return None if self._skip_to_operator() or left is None else bool(left)
        self._at += 1
        right = self._number(self._next())
        self._at += right is not None
        if self._skip_to_operator() or left is None or right is None:
            return None
        return compare(left, right)

    def _bracketed(self) -> Truth:
        found = self._any()
        whole = self._next() == ")"
        self._skip_to_operator()
        self._at += 1
        return found if whole else None

    def _deeper(self, inner: Callable[[], Truth]) -> Truth:
        if self._depth >= _DEEPEST:
            self._at = len(self._words) + 1
            return None
        self._depth += 1
        try:
            return inner()
        finally:
            self._depth -= 1

    def _defined(self) -> Truth:
        bracketed = self._next() == "("
        self._at += bracketed
        name = self._next()
        self._at += 1 + bracketed
        return self._known(name)

    def _skip_to_operator(self) -> bool:
        """Go to the end of a comparison or a call, and say whether there was one."""
        begun, depth = self._at, 0
        while self._at < len(self._words):
            word = self._next()
            if not depth and word in ("&&", "||", ")"):
                break
            depth += {"(": 1, ")": -1}.get(word, 0)
            self._at += 1
        return self._at > begun


def _not(value: Truth) -> Truth:
    return None if value is None else not value


def _and(one: Truth, other: Truth) -> Truth:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _or(one: Truth, other: Truth) -> Truth:
    return _not(_and(_not(one), _not(other)))
