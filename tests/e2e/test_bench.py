"""`bench` with the real small model: brought up, measured, compared and taken down again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import EmbeddedStack, own_xdg_folders
from tests.fake_slow_proxy import fake_slow_proxy
from tests.unit.command_line import run
from zluda_stack import keys
from zluda_stack.bench import saved
from zluda_stack.engines.base import State
from zluda_stack.errors import ExitCode

pytestmark = pytest.mark.embedded

QUICK = ("--prompt", "small", "--rounds", "1")


def test_a_profile_is_brought_up_measured_and_taken_down(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_xdg_folders(monkeypatch, tmp_path)
    file = tmp_path / "b.json"
    model = ("--model", str(gguf), "--context", "1024", "--threads", "1")
    told = run("bench", "cpu", "--prompt", "small,file", "--rounds", "1", *model, "-o", str(file))
    assert told.code == 0, told.err
    kept = saved.read(file)
    (target,) = kept.targets
    assert (target.profile, target.engine, target.context) == ("cpu", "embedded", 1024)
    assert target.model_sha256 is not None
    assert target.device is not None
    assert kept.watched[0].memory is not None
    assert kept.watched[0].memory > 50e6
    answers = [answer for wave in kept.waves for answer in wave.answers]
    assert not any(answer.fault for answer in answers)
    # The model would have ended its story before; nothing of a prompt came out of the cache.
    assert {answer.tokens for answer in answers} == {64}
    assert {answer.cached_tokens for answer in answers} == {0}
    assert "cpu, file: not measured: HTTP 400: This model's maximum context" in told.out
    assert tmp_path.name not in file.read_text()
    after = run("status", "--name", "bench-cpu", "--json").json
    assert after["state"] == State.STOPPED.value


def test_a_running_stack_and_a_fake_slow_proxy_before_it_give_whole_answers(
    running: EmbeddedStack,
) -> None:
    key = str(keys.key_file(running.name))
    with fake_slow_proxy(running.plan.endpoint.port, 1.1) as port:
        slow = f"slow=http://127.0.0.1:{port}"
        told = run(
            *("bench", f"stack:{running.name}", slow, "--key-file", key),
            *("--remote-model", "default", *QUICK, "--json"),
        )
    assert told.code == 0, told.err
    waves = told.json["run"]["waves"]
    assert {wave["target"] for wave in waves} == {running.name, "slow"}
    answers = [answer for wave in waves for answer in wave["answers"]]
    assert {(answer["fault"], answer["tokens"]) for answer in answers} == {("", 64)}
    assert running.status().healthy


def test_ended_from_outside_it_leaves_nothing_running(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_xdg_folders(monkeypatch, tmp_path)
    line = (sys.executable, "-m", "zluda_stack", "bench", "cpu", "--model", str(gguf))
    often = ("--prompt", "small", "--rounds", "90", "--context", "1024", "--threads", "1")
    with subprocess.Popen((*line, *often, "--yes"), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("loading" in line for line in process.stderr)
        process.terminate()
        told = process.stderr.read()
    assert process.returncode == ExitCode.INTERRUPTED
    assert "error: interrupted" in told
    after = run("status", "--name", "bench-cpu", "--json").json
    assert after["state"] == State.STOPPED.value
