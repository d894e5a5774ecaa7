"""What --gpu says: a way to choose, or cards by number, PCI address, unique id or name."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from zluda_stack.errors import PlanRefused
from zluda_stack.plan.gpu_card import Card

_FORMS = (
    "It takes auto, none, all, a gfx target (gfx1100), a product (rx 7900 xtx), a number of "
    "`zluda-stack gpus`, a PCI address (03:00.0), a unique id (GPU-...), or several of the last "
    "five separated by commas."
)
# Two digits at most: 803 and 1100 are gfx targets.
_NUMBER = re.compile(r"[0-9]{1,2}")
# The domain, which may be left out, then bus, device and function.
_ADDRESS = re.compile(
    r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", re.IGNORECASE
)
# As rocminfo prints it and ROCR_VISIBLE_DEVICES takes it.
_UNIQUE_ID = re.compile(r"gpu-([0-9a-f]{1,16})", re.IGNORECASE)


class Wanted(Struct, frozen=True, kw_only=True):
    """One card that was asked for: the user's words, and what they are."""

    text: str
    kind: Literal["number", "address", "id", "name"]

    def means(self, card: Card) -> bool:
        """True when this number, address or id is that of `card`; names need the catalogue."""
        if self.kind == "number":
            return card.index == int(self.text)
        if self.kind == "address":
            return _same(_ADDRESS, self.text, card.facts.pci or "")
        return self.kind == "id" and _same(_UNIQUE_ID, self.text, card.facts.unique_id or "")


class Wish(Struct, frozen=True, kw_only=True):
    """`named` has the cards for the way `named`, and is empty for the others."""

    way: Literal["auto", "none", "all", "named"]
    named: tuple[Wanted, ...] = ()


def read_wish(text: str) -> Wish:
    """What the setting gpu says. Raises PlanRefused for what has no meaning."""
    words = [word.strip() for word in text.split(",")]
    plain = [word.lower() for word in words]
    if plain == ["auto"]:
        return Wish(way="auto")
    if plain == ["none"]:
        return Wish(way="none")
    if plain == ["all"]:
        return Wish(way="all")
    if "" in words:
        raise PlanRefused(f"gpu is {text!r}, which names nothing where a card must be", _FORMS)
    for word in ("auto", "none", "all"):
        if word in plain:
            raise PlanRefused(f"gpu is {text!r}, but {word} stands by itself only", _FORMS)
    return Wish(way="named", named=tuple(map(_wanted, words)))


def _wanted(word: str) -> Wanted:
    if _NUMBER.fullmatch(word):
        return Wanted(text=word, kind="number")
    if _ADDRESS.fullmatch(word):
        return Wanted(text=word, kind="address")
    return Wanted(text=word, kind="id" if _UNIQUE_ID.fullmatch(word) else "name")


def _same(form: re.Pattern[str], wanted: str, known: str) -> bool:
    """True when both have this form and the same numbers in it; one left out means any."""
    ours, theirs = form.fullmatch(wanted), form.fullmatch(known)
    if ours is None or theirs is None:
        return False
    pairs = zip(ours.groups(), theirs.groups(), strict=True)
    return all(mine is None or int(mine, 16) == int(other, 16) for mine, other in pairs)
