"""The targets that a user names."""

from __future__ import annotations

from collections import Counter
from typing import Literal, get_args

from msgspec import Struct

from zluda_stack.catalog.nearest import did_you_mean
from zluda_stack.errors import UsageError
from zluda_stack.settings import Profile

CPU = "cpu"
DEFAULT = ("translated", "native", CPU)
_STACK = "stack:"
_SCHEMES = ("http://", "https://")
_REMOTE = "remote"


class Wish(Struct, frozen=True, kw_only=True):
    """One target: a profile (or `cpu`), the name of a stack, or a URL, as `kind` says.

    `name` is what it is called in this bench.
    """

    name: str
    kind: Literal["profile", "stack", "remote"]
    value: str


def parse(words: tuple[str, ...]) -> tuple[Wish, ...]:
    """The targets in `words`: PROFILE, cpu, stack:NAME, URL, or NAME=URL.

    One that stands there twice is measured twice, under two names. Raises UsageError.
    """
    seen: Counter[str] = Counter()
    wishes = []
    for word in words:
        wish = _parse(word)
        seen[wish.name] += 1
        if seen[wish.name] > 1:
            wish = Wish(name=f"{wish.name}-{seen[wish.name]}", kind=wish.kind, value=wish.value)
        wishes.append(wish)
    if len({wish.name for wish in wishes}) < len(wishes):
        raise UsageError("two targets have one name", "Give each URL another one: NAME=URL.")
    return tuple(wishes)


def _parse(word: str) -> Wish:
    label, equals, address = word.partition("=")
    if word.startswith(_SCHEMES):
        return Wish(name=_REMOTE, kind="remote", value=word)
    if equals and address.startswith(_SCHEMES) and label.replace("-", "").isalnum():
        return Wish(name=label, kind="remote", value=address)
    if word.startswith(_STACK):
        name = word.removeprefix(_STACK)
        return Wish(name=name, kind="stack", value=name)
    profiles = (*get_args(Profile), CPU)
    if word not in profiles:
        raise UsageError(
            f"{word or 'an empty word'} is no target",
            f"{did_you_mean(word, profiles)}It is {', '.join(profiles)}, stack:NAME, or the URL of "
            "a server, also as NAME=URL.",
        )
    return Wish(name=word, kind="profile", value=word)
