"""Several models at once: their room is checked together, and one that fails stops no other."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, Queue

from zluda_stack.errors import Interrupted, StackError
from zluda_stack.models.store import Store
from zluda_stack.models.wanted import WantedModel, size_of_all
from zluda_stack.progress import Progress, Together

AT_ONCE = 3
_POLL_SECONDS = 0.2
# How long threads may take to leave their files in order after Ctrl-C.
_LEAVE_SECONDS = 2.0


def pull_all(
    store: Store, models: Sequence[WantedModel], progress: Progress
) -> list[Path | StackError]:
    """What became of each of `models`: its path in the store, or why it is not there.

    Raises HostProblem when the disk has no room for all, Interrupted.
    """
    if len(models) == 1:
        return [_pulled(store, models[0], progress)]
    store.require_room(models, progress)
    return _Crew(store, models, progress).run()


def _pulled(store: Store, model: WantedModel, progress: Progress) -> Path | StackError:
    try:
        return store.ensure(model, progress)
    except Interrupted:
        raise
    except StackError as error:
        return error


class _Crew:
    """Threads that pull models until none is left.

    They are daemons, since a read from a dead connection outlasts Ctrl-C; what they leave behind
    then is what a killed pull leaves.
    """

    def __init__(self, store: Store, models: Sequence[WantedModel], progress: Progress) -> None:
        self._store = store
        self._models = models
        self._left: Queue[int] = Queue()
        for number in range(len(models)):
            self._left.put(number)
        self._became: dict[int, Path | StackError | Exception] = {}
        self._stopping = threading.Event()
        names = ", ".join(model.name for model in models)
        self._together = Together(progress, f"fetching {names}")

    def run(self) -> list[Path | StackError]:
        """Pull all; raises what no thread should have met."""
        count = min(AT_ONCE, len(self._models))
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(_POLL_SECONDS)
        except KeyboardInterrupt:
            self._stopping.set()
            for thread in threads:
                thread.join(_LEAVE_SECONDS)
            raise Interrupted(
                "the pulls were interrupted; what has arrived is kept",
                "The same command goes on from there.",
            ) from None
        return [self._result(number) for number in range(len(self._models))]

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                number = self._left.get_nowait()
            except Empty:
                return
            model = self._models[number]
            size = 0 if self._store.get(model) is not None else size_of_all(model.files)
            lane = _Stoppable(self._together.lane(model.name, size), self._stopping)
            try:
                self._became[number] = _pulled(self._store, model, lane)
            except Exception as error:  # told by `run`, in the thread that can
                self._became[number] = error

    def _result(self, number: int) -> Path | StackError:
        became = self._became[number]
        if isinstance(became, Path | StackError):
            return became
        raise became


class _Stoppable:
    """Progress that ends the work of its thread when all are to stop."""

    def __init__(self, progress: Progress, stopping: threading.Event) -> None:
        self._progress = progress
        self._stopping = stopping

    def step(self, text: str) -> None:
        """Pass it on. Raises Interrupted when the thread is to stop."""
        self._check()
        self._progress.step(text)

    def bytes(self, done: int, total: int | None) -> None:
        """Pass it on. Raises Interrupted when the thread is to stop."""
        self._check()
        self._progress.bytes(done, total)

    def _check(self) -> None:
        if self._stopping.is_set():
            raise Interrupted("stopped")
