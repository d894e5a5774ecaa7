"""Benches that were never measured: of servers that are as fast, and vary, as a test says."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from msgspec import structs

from zluda_stack.bench import metrics, schedule
from zluda_stack.bench.saved import Answer, Machine, Run, TargetFacts, Wave

MACHINE = Machine(system="Linux", machine="x86_64", kernel="6", cpu=None, cpu_count=2, memory=None)
Noise = Callable[[random.Random, float], float]
"""The logarithm of how much slower a request is, at a time from 0 to 1."""


def seeded(seed: int) -> random.Random:
    """Chance that is the same each time."""
    return random.Random(seed)  # noqa: S311 -- a simulation


def drifting(chance: random.Random, moment: float) -> float:
    """A machine that gets 20 % slower in the course of a bench, in waves, with heavy tails."""
    drift = 0.2 * moment + 0.05 * math.sin(9 * moment)
    # Student's t with three degrees of freedom, and one request of 30 that stalls.
    tail = chance.gauss(0, 1) / math.sqrt(sum(chance.gauss(0, 1) ** 2 for _ in range(3)) / 3)
    stall = chance.uniform(0.2, 1.0) if chance.random() < 1 / 30 else 0.0
    return drift + 0.02 * tail + stall


def run(
    slower: dict[str, float],
    seed: int,
    *,
    rounds: int = 8,
    clients: int = 1,
    noise: Noise = drifting,
    began: float = 0.0,
) -> Run:
    """A bench of the targets in `slower`, each of which takes so many times as long."""
    chance = seeded(seed)
    # Another seed: the order must know nothing of the noise.
    visits = schedule.order(tuple(slower), rounds, seed + 10**6)
    waves = []
    for number, visit in enumerate(visits):
        moment = began + number / len(visits)
        answers = tuple(answer(slower[visit.target], chance, noise, moment) for _ in range(clients))
        waves.append(
            Wave(
                target=visit.target,
                round=visit.round,
                visit=number,
                prompt="small",
                clients=clients,
                began=moment,
                seconds=max(one.last for one in answers),
                answers=answers,
            )
        )
    return Run(
        program="a test",
        began="2026-12-01T00:00:00Z",
        seconds=1.0,
        machine=MACHINE,
        targets=tuple(TargetFacts(name=name, kind="profile", model="m") for name in slower),
        prompts={"small": "hash"},
        clients=(clients,),
        rounds=rounds,
        order=seed,
        client_cpu=0.1,
        waves=tuple(waves),
    )


def shortened(made: Run, rounds: int) -> Run:
    """The first `rounds` of a bench."""
    waves = tuple(wave for wave in made.waves if wave.round < rounds)
    return structs.replace(made, waves=waves, rounds=rounds)


def differences(made: Run, first: str, second: str) -> dict[str, list[float]]:
    """How much faster `second` was in each round, as logarithms of times or rates, by metric."""
    theirs = [metrics.series(made.waves, name) for name in (first, second)]
    rows = {}
    for what in sorted(set(theirs[0]) & set(theirs[1])):
        one, other = (metrics.by_round(each[what]) for each in theirs)
        rows[str(what)] = [other[number] - log for number, log in one.items()]
    return rows


def answer(slower: float, chance: random.Random, noise: Noise, moment: float) -> Answer:
    """An answer of 64 tokens at about 50 a second, after a prompt of 600."""
    first = 0.3 * slower * math.exp(noise(chance, moment))
    gap = 0.02 * slower * math.exp(noise(chance, moment))
    gaps = tuple(gap * math.exp(chance.gauss(0, 0.05)) for _ in range(63))
    return Answer(first=first, last=first + sum(gaps), gaps=gaps, prompt_tokens=600, tokens=64)
