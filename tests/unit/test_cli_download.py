"""A large model is not fetched before its size and licence were told and agreed to."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.unit.command_line import settle
from tests.unit.planning import GIB, card, machine, plan_for
from zluda_stack import paths
from zluda_stack.cli import download
from zluda_stack.errors import UsageError
from zluda_stack.files import write_atomic
from zluda_stack.plan.types import Plan, to_json


@pytest.fixture(autouse=True)
def nobody_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(tmp_path, monkeypatch)
    monkeypatch.setattr("sys.stdin", io.StringIO())


def large() -> Plan:
    return plan_for(machine(card("gfx1100", vram_bytes=24 * GIB)))


def test_where_nobody_can_be_asked_only_a_yes_fetches_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = large()
    with pytest.raises(UsageError) as refused:
        download.agree(plan, yes=False, show=True)
    assert "--yes" in refused.value.hint
    download.agree(plan, yes=True, show=True)
    told = capsys.readouterr().out
    assert plan.model.catalogued is not None
    assert plan.model.catalogued.licence in told
    assert " GB" in told


def test_what_this_stack_served_before_is_here() -> None:
    plan = large()
    write_atomic(paths.stack(plan.name) / "plan.json", to_json(plan))
    download.agree(plan, yes=False, show=True)


def test_a_small_download_is_not_worth_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    download.agree(plan_for(machine(), gpu="none"), yes=False, show=True)
    assert capsys.readouterr().out == ""
