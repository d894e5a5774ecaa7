"""Progress as people see it: live on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from tests.unit.command_line import FakeTerminal
from zluda_stack.cli import output
from zluda_stack.cli.output import PlainProgress


class FakeClock:
    """A clock that is set by hand, in seconds."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTerminal]:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    yield FakeTerminal(io.BytesIO(), encoding="utf-8", write_through=True)


def shown_on(terminal: FakeTerminal) -> str:
    """Everything that was written to the terminal, control sequences included."""
    raw = terminal.buffer
    assert isinstance(raw, io.BytesIO)
    return raw.getvalue().decode()


def test_away_from_a_terminal_each_step_is_one_plain_line() -> None:
    stream = io.StringIO()

    with output.progress(stream) as progress:
        progress.step("downloading the model")
        progress.step("loading the model")

    assert stream.getvalue() == "downloading the model\nloading the model\n"


def test_away_from_a_terminal_bytes_are_told_every_few_seconds_only() -> None:
    stream, clock = io.StringIO(), FakeClock()
    progress = PlainProgress(stream, clock)
    progress.step("downloading")

    for done in range(1, 25):
        clock.now += 0.5
        progress.bytes(done * 1_000_000, 24_000_000)

    assert stream.getvalue().splitlines() == [
        "downloading",
        "  10.0 MB of 24.0 MB, 2.0 MB/s, 7 s left",
        "  20.0 MB of 24.0 MB, 2.0 MB/s, 2 s left",
    ]


def test_bytes_of_unknown_whole_are_told_alone() -> None:
    stream, clock = io.StringIO(), FakeClock()
    progress = PlainProgress(stream, clock)
    clock.now = 60.0

    progress.bytes(1_500_000, None)

    assert stream.getvalue() == "  1.5 MB\n"


def test_on_a_terminal_finished_steps_stay_and_a_repeated_step_is_one(
    terminal: FakeTerminal,
) -> None:
    with output.progress(terminal) as progress:
        progress.step("downloading [the] model")
        progress.bytes(500_000, 1_000_000)
        progress.step("loading ... 0 s")
        progress.step("loading ... 5 s")

    text = shown_on(terminal)
    assert text.count("✓ downloading [the] model (0.5 MB of 1.0 MB)") == 1
    assert text.count("✓ loading") == 1


def test_on_a_terminal_a_sign_of_life_is_shown_while_the_step_runs_and_not_kept(
    terminal: FakeTerminal,
) -> None:
    with output.progress(terminal) as progress:
        progress.step("starting ... 5 s: compiling kernel 7")

    text = shown_on(terminal)
    assert "starting: compiling kernel 7" in text
    assert "✓ starting\n" in text.replace("\r", "")


def test_on_a_terminal_the_step_that_failed_is_marked(terminal: FakeTerminal) -> None:
    with pytest.raises(KeyboardInterrupt), output.progress(terminal) as progress:
        progress.step("downloading")
        raise KeyboardInterrupt

    assert "✗ downloading" in shown_on(terminal)


def test_a_dumb_terminal_gets_plain_lines(
    terminal: FakeTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")

    with output.progress(terminal) as progress:
        progress.step("downloading")

    assert shown_on(terminal) == "downloading\n"


def test_json_output_is_sorted_and_readable(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"b": 1, "a": ["ü"]})

    assert capsys.readouterr().out == '{\n  "a": [\n    "ü"\n  ],\n  "b": 1\n}\n'


def test_a_table_on_a_terminal_shows_cells_as_they_are(
    terminal: FakeTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", terminal)

    output.table(("name", "value"), [("[bold]", "a"), (":smile:", "b")])

    assert "[bold]" in shown_on(terminal)
    assert ":smile:" in shown_on(terminal)


def test_who_waits_for_an_answer_away_from_a_terminal_sees_the_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_SECONDS_BETWEEN_SIGNS_OF_LIFE", 0.01)
    told = ""
    with output.waiting("asking the endpoint: tools ..."):
        while told.count("\n") < 2:
            told += capsys.readouterr().err

    first, second, *_ = told.splitlines()
    assert first == "asking the endpoint: tools ..."
    assert second == "  no answer yet after 0 s"
