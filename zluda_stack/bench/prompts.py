"""The prompts of a bench: made here, the same for every target and version of this program."""

from __future__ import annotations

import hashlib
import secrets

from msgspec import Struct

_VERBS = ("merge", "sort", "count", "check", "split", "write", "close", "update", "remove")
_NOUNS = (
    "records",
    "orders",
    "lines",
    "users",
    "files",
    "rows",
    "events",
    "blocks",
    "parts",
    "keys",
)
_FUNCTION = '''\
def {verb}_{noun}_{number}({noun}: list[Entry], limit: int = {limit}) -> list[Entry]:
    """Return the {noun} whose count is above the limit."""
    kept = [entry for entry in {noun} if entry.count > limit]
    total = sum(entry.weight * {factor} for entry in kept)
    if total > {most}:
        raise ValueError(f"too many {noun}: {{total}}")
    return kept

'''


class Prompt(Struct, frozen=True, kw_only=True):
    """What is asked, and how many tokens are to be answered.

    `about` is its length in tokens as most models count it.
    """

    name: str
    text: str
    about: int
    answer: int


def all_prompts() -> dict[str, Prompt]:
    """Every prompt by its name, the shortest first.

    `small` is a question, `file` a source file, and `coding` as long as what a coding client
    sends with its first request (docs/clients.md).
    """
    question = "\nExplain every function above, one after the other."
    made = (
        Prompt(
            name="small",
            text="Write a long story about a ship that crosses an unknown sea.",
            about=30,
            answer=64,
        ),
        Prompt(name="file", text=_code(14) + question, about=1500, answer=64),
        Prompt(name="coding", text=_code(110) + question, about=12000, answer=64),
    )
    return {prompt.name: prompt for prompt in made}


def digest(prompts: list[Prompt]) -> str:
    """The SHA-256 of these prompts, with how they are asked: equal only for an equal load."""
    told = repr([(one.name, one.text, one.answer) for one in prompts])
    return hashlib.sha256(told.encode()).hexdigest()


def asked(prompt: Prompt, *, cached: bool) -> str:
    """The text to send: with a first line that no other request has, unless it is to be `cached`.

    The line has as many digits each time, so that its tokens are as many.
    """
    number = 0 if cached else secrets.randbelow(10**9)
    return f"# request {number:09d}\n{prompt.text}"


def _code(functions: int) -> str:
    """Python source with so many functions, of which no two are alike."""
    return "".join(
        _FUNCTION.format(
            verb=_VERBS[number % len(_VERBS)],
            noun=_NOUNS[number % len(_NOUNS)],
            number=100 + number,
            limit=10 + number * 7 % 90,
            factor=2 + number % 8,
            most=1000 + number * 37 % 9000,
        )
        for number in range(functions)
    )
