"""The bench itself: visits targets in turn, asks each the same, and keeps all that came."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Protocol

from zluda_stack.bench import load, precision, schedule
from zluda_stack.bench.compare import MARGIN
from zluda_stack.bench.load import Server
from zluda_stack.bench.prompts import Prompt
from zluda_stack.bench.saved import Answer, NotMeasured, TargetFacts, Watched, Wave
from zluda_stack.bench.watching import Gauge, Watch
from zluda_stack.errors import Interrupted, StackError
from zluda_stack.progress import Progress

# What a server says to a prompt that it can never take, and to fields that it does not know.
_REFUSED = "HTTP 400"
# So much longer a bench may take for more rounds.
_MORE_SECONDS = 600


@dataclass(frozen=True)
class Opened:
    """A target that answers: where to ask, what can be read of it, and what it is."""

    server: Server
    facts: TargetFacts
    gauges: Mapping[str, Gauge] = field(default_factory=dict)


class Target(Protocol):
    """Something to measure. No two that share `cards` (PCI addresses) are open at once."""

    @property
    def name(self) -> str:
        """What it is called in this bench."""

    @property
    def cards(self) -> frozenset[str]:
        """The cards that it computes on."""

    def open(self, progress: Progress) -> Opened:
        """Let it answer. Raises StackError."""

    def close(self, progress: Progress) -> None:
        """Leave nothing running that `open` started."""


@dataclass(frozen=True)
class Asked:
    """What every target is asked: each prompt by so many clients at once, in so many rounds.

    Where that is not enough to tell a difference of `margin`, there are `more_rounds` at most.
    """

    prompts: tuple[Prompt, ...]
    clients: tuple[int, ...]
    rounds: int
    cached: bool
    order: int
    more_rounds: int = 0
    margin: float = MARGIN

    def scenarios(self) -> Iterator[tuple[Prompt, int]]:
        """Each prompt with each number of clients."""
        return ((prompt, clients) for prompt in self.prompts for clients in self.clients)

    def requests(self) -> int:
        """How many requests one target gets at least, but for those that warm it up."""
        return 2 * self.rounds * sum(clients for _, clients in self.scenarios())

    def tokens(self) -> tuple[int, int]:
        """About how many tokens of prompts and of answers these are."""
        weights = [(prompt, 2 * self.rounds * clients) for prompt, clients in self.scenarios()]
        return (
            sum(prompt.about * times for prompt, times in weights),
            sum(prompt.answer * times for prompt, times in weights),
        )


@dataclass
class Measured:
    """What came of it. `began` is a time in UTC, `seconds` how long it took so far.

    `client_cpu` is the CPU time of this process in `seconds_of_waves`. `still_up` says what could
    not be taken down again: no harm to what was measured.
    """

    began: str
    seconds: float = 0.0
    targets: dict[str, TargetFacts] = field(default_factory=dict)
    waves: list[Wave] = field(default_factory=list)
    watched: list[Watched] = field(default_factory=list)
    not_measured: list[NotMeasured] = field(default_factory=list)
    still_up: list[StackError] = field(default_factory=list)
    client_cpu: float = 0.0
    seconds_of_waves: float = 0.0


class Bench:
    """One bench of `targets`. What is open is closed when the context is left."""

    def __init__(self, targets: Sequence[Target], asked: Asked, progress: Progress) -> None:
        self._targets = {target.name: target for target in targets}
        self._asked = asked
        self._progress = progress
        self._open: dict[str, Opened] = {}
        self._refused: set[tuple[str, str, int]] = set()
        self._gone: set[str] = set()
        self._began = time.perf_counter()
        self._enough_by = math.inf
        self.found = Measured(f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}")

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        """Close all that is open, whatever happens to one of them."""
        with ExitStack() as closing:
            for name in list(self._open):
                closing.callback(self._close, name)

    def run(self) -> Measured:
        """Visit all targets in all rounds. A target that fails to open is left out from then on."""
        most = self._asked.rounds + self._asked.more_rounds
        visits = schedule.order(tuple(self._targets), most, self._asked.order)
        for number, visit in enumerate(visits):
            if number % self._per_round == 0 and self._is_enough(visit.round):
                break
            if visit.target in self._gone:
                continue
            self._progress.step(self._told(number, visit))
            try:
                opened = self._opened(visit.target)
            except Interrupted:
                raise
            except StackError as error:
                self._gone.add(visit.target)
                self._not_measured(visit.target, None, error.message, error.hint or "")
                continue
            self._visit(opened, visit, number)
            self.found.seconds = time.perf_counter() - self._began
        known = self.found.targets
        self.found.targets = {name: known[name] for name in self._targets if name in known}
        return self.found

    @property
    def _per_round(self) -> int:
        return 2 * len(self._targets)

    def _is_enough(self, rounds: int) -> bool:
        """True when there are at least as many rounds as were asked for, and no need of more."""
        if rounds < self._asked.rounds:
            return False
        if rounds == self._asked.rounds:
            self._enough_by = time.perf_counter() + _MORE_SECONDS
        names = [name for name in self._targets if name not in self._gone]
        return time.perf_counter() > self._enough_by or precision.is_enough(
            self.found.waves, names, self._asked.margin
        )

    def _told(self, number: int, visit: schedule.Visit) -> str:
        if visit.round >= self._asked.rounds:
            return f"round {visit.round + 1}, since the numbers vary: {visit.target}"
        text = f"round {visit.round + 1} of {self._asked.rounds}: {visit.target}"
        if number < self._per_round:
            return text
        of = self._per_round * self._asked.rounds
        left = (time.perf_counter() - self._began) / number * (of - number)
        return f"{text} (about {_minutes(left)} left)"

    def _opened(self, name: str) -> Opened:
        if name in self._open:
            return self._open[name]
        target = self._targets[name]
        for other in list(self._open):
            if self._targets[other].cards & target.cards:
                self._close(other)
        first = name not in self.found.targets
        opened = self._open[name] = target.open(self._progress)
        self.found.targets[name] = opened.facts
        self._warm(opened, name, first=first)
        return opened

    def _close(self, name: str) -> None:
        del self._open[name]
        try:
            self._targets[name].close(self._progress)
        except Interrupted:
            raise
        except StackError as error:
            problem = f"{name} could not be taken down: {error.message}"
            self.found.still_up.append(type(error)(problem, error.hint))

    def _warm(self, opened: Opened, name: str, *, first: bool) -> None:
        """Ask everything once: kernels are compiled, and what the server refuses is found."""
        for prompt, clients in self._asked.scenarios():
            if (name, prompt.name, clients) in self._refused:
                continue
            answers, _ = load.wave(opened.server, prompt, clients, cached=self._asked.cached)
            reason = _refusal(answers)
            if first and reason is not None:
                self._refused.add((name, prompt.name, clients))
                many = "" if clients == 1 else f", {clients} clients"
                self._not_measured(name, prompt.name + many, reason)

    def _visit(self, opened: Opened, visit: schedule.Visit, number: int) -> None:
        """One turn of a target: short, so that what disturbs it hits the next one too."""
        with Watch(opened.gauges) as watch:
            for prompt, clients in self._asked.scenarios():
                if (visit.target, prompt.name, clients) in self._refused:
                    continue
                self._wave(opened.server, visit, number, prompt, clients)
        if opened.gauges:
            self.found.watched.append(watch.told(visit.target, number))

    def _wave(
        self, server: Server, visit: schedule.Visit, number: int, prompt: Prompt, clients: int
    ) -> None:
        began, cpu = time.perf_counter(), time.process_time()
        answers, seconds = load.wave(server, prompt, clients, cached=self._asked.cached)
        self.found.client_cpu += time.process_time() - cpu
        self.found.seconds_of_waves += time.perf_counter() - began
        wave = Wave(
            target=visit.target,
            round=visit.round,
            visit=number,
            prompt=prompt.name,
            clients=clients,
            began=round(began - self._began, 3),
            seconds=round(seconds, 6),
            answers=answers,
        )
        self.found.waves.append(wave)

    def _not_measured(self, target: str, prompt: str | None, reason: str, hint: str = "") -> None:
        lack = NotMeasured(target=target, prompt=prompt, reason=reason, hint=hint)
        self.found.not_measured.append(lack)


def _refusal(answers: Sequence[Answer]) -> str | None:
    """Why a server takes none of this, as its first answer says; None when it does."""
    told = (answer.fault for answer in answers if answer.fault.startswith(_REFUSED))
    return next(told, None)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
