"""`zluda-stack models pull` as a user runs it: the real program, the real catalogue, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.model_wheels import only_from, wheel_server
from zluda_stack.catalog.load import load
from zluda_stack.catalog.schema import PypiModel
from zluda_stack.models.gguf_header import read_header

PROGRAM = (sys.executable, "-m", "zluda_stack")
MODEL = load().models["smollm2-135m"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without models."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for kind in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    return tmp_path


def models(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, "models", *arguments], capture_output=True, text=True, check=False
    )


def state() -> str:
    """What `models list` says of the model now."""
    (line,) = [
        line for line in json.loads(models("list", "--json").stdout) if line["name"] == MODEL.name
    ]
    return str(line["state"])


@pytest.mark.embedded
def test_the_first_model_is_pulled_checked_and_ready() -> None:
    assert state() == "not here"
    pulled = models("pull", MODEL.name)
    assert pulled.returncode == 0, pulled.stderr
    assert state() == "ready"
    path = Path(pulled.stdout.split(": ", 1)[1].strip())
    facts = read_header(path)
    assert facts.problem is None
    assert (facts.size, facts.context_length) == (MODEL.size, MODEL.context_length)
    checked = models("verify", MODEL.name)
    assert checked.returncode == 0
    assert f"whole (sha256 {MODEL.sha256})" in checked.stdout
    assert models("rm", MODEL.name).returncode == 0
    assert state() == "not here"
    assert not path.exists()


def wheel_of_the_model() -> PypiModel:
    assert MODEL.pypi is not None
    return MODEL.pypi


@pytest.mark.parametrize("signals", [(signal.SIGINT,), (signal.SIGINT, signal.SIGINT)])
def test_ctrl_c_ends_a_pull_at_once_and_leaves_no_ready_model(
    home: Path, monkeypatch: pytest.MonkeyPatch, signals: tuple[signal.Signals, ...]
) -> None:
    with wheel_server({wheel_of_the_model().wheel: bytes(1 << 20)}) as server:
        only_from(monkeypatch, server.url)
        server.gate.clear()
        process = subprocess.Popen(
            [*PROGRAM, "models", "pull", MODEL.name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert server.sending.wait(30)
        assert state() == "pulling"
        for number in signals:
            os.killpg(process.pid, number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in err
    assert out == ""
    assert state() in {"not here", "incomplete"}
    assert not list((home / "data").rglob("blobs/*"))


def test_a_wheel_that_is_not_the_catalogues_is_refused_in_two_lines(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with wheel_server({wheel_of_the_model().wheel: b"not the wheel"}) as server:
        only_from(monkeypatch, server.url)
        refused = models("pull", MODEL.name)
    assert refused.returncode == 4
    assert wheel_of_the_model().wheel_sha256 in refused.stderr
    assert [line.split(":")[0] for line in refused.stderr.splitlines()[-2:]] == ["error", "hint"]
    assert state() == "not here"
    assert not list((home / "data").rglob("*.whl"))
