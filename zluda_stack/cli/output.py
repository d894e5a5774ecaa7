"""How the program speaks: facts on stdout, progress and errors on stderr, colour decided here."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

from zluda_stack.program import as_typed
from zluda_stack.progress import Rate
from zluda_stack.units import megabytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from rich.console import Console
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from zluda_stack.errors import StackError
    from zluda_stack.progress import Progress

_SECONDS_BETWEEN_PLAIN_LINES = 5.0
_SECONDS_BETWEEN_SIGNS_OF_LIFE = 15.0


def use_color(stream: TextIO, *, no_color: bool = False) -> bool:
    """True when `stream` may be coloured: a terminal, not a dumb one, and nobody said no.

    The user says no with --no-color (`no_color`, or the running command's context) or with
    NO_COLOR (https://no-color.org: any value but the empty one).
    """
    context = click.get_current_context(silent=True)
    if no_color or (context is not None and context.color is False):
        return False
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def say(text: str = "") -> None:
    """One line of what was asked for, on stdout."""
    click.echo(text)


def note(text: str) -> None:
    """One line beside what was asked for, on stderr."""
    click.echo(text, err=True)


def heading(text: str) -> None:
    """A line on stdout that stands out where colour is wanted."""
    click.echo(click.style(text, bold=True), color=use_color(sys.stdout))


def printable(text: str) -> str:
    """`text` with nothing that steers a terminal, for what files of others say."""
    return "".join(char if char.isprintable() else "�" for char in text)


def styled(text: str, hue: str) -> str:
    """`text` for stdout, in the colour `hue` where colour is wanted."""
    return click.style(text, fg=hue, bold=True) if use_color(sys.stdout) else text


def warn(message: str, hint: str = "") -> None:
    """A warning and its next step on stderr."""
    _two_lines("warning", "yellow", message, hint, color=use_color(sys.stderr))


def complain(message: str, hint: str, *, no_color: bool = False) -> None:
    """An error and its next step on stderr."""
    _two_lines("error", "red", message, hint, color=use_color(sys.stderr, no_color=no_color))


def error_facts(error: StackError) -> dict[str, object]:
    """`error` as it stands under "error" in JSON."""
    return {
        "message": error.message,
        "hint": as_typed(error.hint),
        "exit_code": int(error.exit_code),
    }


def _two_lines(label: str, hue: str, message: str, hint: str, *, color: bool) -> None:
    click.echo(f"{click.style(f'{label}:', fg=hue, bold=True)} {message}", err=True, color=color)
    if hint:
        styled = click.style("hint:", fg="cyan")
        click.echo(f"{styled} {as_typed(hint)}", err=True, color=color)


def print_json(obj: object) -> None:
    """`obj` (plain data or msgspec structs) as indented JSON with sorted keys on stdout.

    A file's name that is no UTF-8 has its odd bytes as \\udc80 to \\udcff, as Python reads them.
    """
    import msgspec

    try:
        raw = msgspec.json.format(msgspec.json.encode(obj, order="sorted"), indent=2)
    except UnicodeEncodeError:
        import json

        click.echo(json.dumps(msgspec.to_builtins(obj, str_keys=True), sort_keys=True, indent=2))
    else:
        click.echo(raw.decode())


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on stdout. Cells are plain text; away from a terminal no line is cut or wrapped."""
    cells = [tuple(row) for row in rows]
    if not sys.stdout.isatty():
        _plain_table([tuple(columns), *cells])
        return
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in cells:
        drawn.add_row(*(Text(cell) for cell in row))
    _console(sys.stdout).print(drawn)


def _plain_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    colored = use_color(stream)
    return Console(
        file=stream,
        no_color=not colored,
        force_terminal=stream.isatty(),
        highlight=False,
        markup=False,
        emoji=False,
        color_system="auto" if colored else None,
    )


def progress(stream: TextIO | None = None) -> AbstractContextManager[Progress]:
    """Progress for people on stderr: live lines on a terminal, plain ones elsewhere.

    It is on display inside the `with` block; steps that are over stay there after it.
    """
    shown = sys.stderr if stream is None else stream
    if shown.isatty() and os.environ.get("TERM") != "dumb":
        return LiveProgress(shown)
    return PlainProgress(shown)


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Says on stderr what is being waited for and how long; on a terminal it is gone after that."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        note(text)
        with _signs_of_life():
            yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=_console(sys.stderr), transient=True) as shown:
        shown.add_task(text, total=None)
        yield


@contextmanager
def _signs_of_life() -> Iterator[None]:
    """A line with the seconds now and then, for who reads no live display."""
    over = threading.Event()
    began = time.monotonic()

    def tell() -> None:
        while not over.wait(_SECONDS_BETWEEN_SIGNS_OF_LIFE):
            note(f"  no answer yet after {time.monotonic() - began:.0f} s")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


class PlainProgress:
    """One line a step; while bytes arrive, a line every few seconds."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._last = clock()
        self._rate = Rate(clock)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is left on display."""

    def step(self, text: str) -> None:
        """Print the step."""
        self._rate.restart()
        self._line(text)

    def bytes(self, done: int, total: int | None) -> None:
        """Print how far the step is and how fast, unless a line was printed just now."""
        self._rate.see(done)
        if self._clock() - self._last >= _SECONDS_BETWEEN_PLAIN_LINES:
            self._line(f"  {_with_rate(_amount(done, total), self._rate.told(total))}")

    def _line(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()
        self._last = self._clock()


class LiveProgress:
    """A live line for the current step on a terminal; steps that are over stay above it."""

    def __init__(self, stream: TextIO) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._text = ""
        self._size = ""
        self._rate = Rate()
        self._task: TaskID | None = None
        self._live: RichProgress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[size]}", markup=False),
            TimeElapsedColumn(),
            console=_console(stream),
            transient=True,
        )

    def __enter__(self) -> Progress:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._finish(mark="✓" if kind is None else "✗")
        self._live.stop()

    def step(self, text: str) -> None:
        """Leave the step before as a finished line and show this one as running.

        A step that goes on may be told again with the time it took, and with a sign of life:
        "loading ... 10 s: reading tensors". The time is on display anyway.
        """
        name, _, news = text.partition(" ... ")
        sign = news.partition(": ")[2]
        shown = f"{name}: {sign}" if sign else name
        if self._task is not None and name == self._text:
            self._live.update(self._task, description=shown)
            return
        self._finish(mark="✓")
        self._text, self._size = name, ""
        self._rate.restart()
        self._task = self._live.add_task(shown, total=None, size="")

    def bytes(self, done: int, total: int | None) -> None:
        """Move the bar of the running step."""
        if self._task is None:
            return
        self._rate.see(done)
        self._size = _amount(done, total)
        shown = _with_rate(self._size, self._rate.told(total))
        self._live.update(self._task, completed=done, total=total, size=shown)

    def _finish(self, *, mark: str) -> None:
        if self._task is None:
            return
        self._live.remove_task(self._task)
        self._task = None
        size = f" ({self._size})" if self._size else ""
        self._live.console.print(f"{mark} {self._text}{size}")


def _amount(done: int, total: int | None) -> str:
    return megabytes(done) if total is None else f"{megabytes(done)} of {megabytes(total)}"


def _with_rate(amount: str, rate: str) -> str:
    return f"{amount}, {rate}" if rate else amount
