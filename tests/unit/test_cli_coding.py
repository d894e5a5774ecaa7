"""After the start it is told whether the model calls tools and holds a coding client's prompt."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.command_line import settle
from tests.unit.connecting import started
from tests.unit.fake_endpoint import FakeModel, fake_endpoint
from zluda_stack.cli import coding
from zluda_stack.engines import saved_plan
from zluda_stack.verify.clients import Verdict


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a current folder of the test's own."""
    return settle(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("model", "verdicts"),
    [
        (FakeModel(), {"context": Verdict.OK, "tools": Verdict.OK}),
        (FakeModel(calls_tools=False), {"context": Verdict.OK, "tools": Verdict.LIMIT}),
        (FakeModel(renders_tools=False), {"context": Verdict.OK, "tools": Verdict.LIMIT}),
        (FakeModel(context=8192), {"context": Verdict.LIMIT, "tools": Verdict.OK}),
    ],
)
def test_what_the_running_model_can_do_for_a_coding_client_is_told(
    model: FakeModel, verdicts: dict[str, Verdict], capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_endpoint(model) as port:
        started(port=port)
        plan = saved_plan("default")
        assert plan is not None
        found = coding.look(plan, show=True)
    assert {one.name: one.verdict for one in found} == verdicts
    told = capsys.readouterr().out
    for name, verdict in verdicts.items():
        mark = "✓" if verdict is Verdict.OK else "-"
        assert f"{mark} {name} for Claude Code" in told
