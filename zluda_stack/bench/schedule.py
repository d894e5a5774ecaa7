"""In which order targets are visited, so that what changes with time hits them all alike."""

from __future__ import annotations

import random

from msgspec import Struct


class Visit(Struct, frozen=True, kw_only=True):
    """One turn of a target, in a round that counts from 0."""

    round: int
    target: str


def order(targets: tuple[str, ...], rounds: int, seed: int) -> list[Visit]:
    """All visits: in each round every target twice, in a random order and then backwards (ABBA).

    A drift of the machine that is even over a round then cancels within it, and who comes first is
    decided by chance in each round anew, which is what makes exchanging two targets' names within
    a round a fair test (`zluda_stack.bench.statistics`).
    """
    chance = random.Random(seed)  # noqa: S311 -- an order, not a secret
    visits: list[Visit] = []
    for number in range(rounds):
        turn = list(targets)
        chance.shuffle(turn)
        visits += (Visit(round=number, target=name) for name in (*turn, *reversed(turn)))
    return visits
