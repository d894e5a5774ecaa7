"""What end-to-end tests share: the real small model, and embedded stacks of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zluda_stack import keys, paths
from zluda_stack.catalog.load import load
from zluda_stack.engines.base import StackStatus
from zluda_stack.engines.embedded.engine import EmbeddedEngine
from zluda_stack.models.store import Store
from zluda_stack.plan.types import EndpointPlan, ModelPlan, Plan
from zluda_stack.progress import Silent

BRING_UP = Path(__file__).with_name("bring_up.py")


@pytest.fixture(scope="session")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the catalogue's default model, fetched once per session as a user would."""
    catalog = load()
    store = Store(tmp_path_factory.mktemp("store"))
    return store.ensure(catalog.models[catalog.defaults.model], Silent())


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(condition: Callable[[], bool], seconds: float = 30) -> bool:
    """True as soon as `condition` holds, False when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class EmbeddedStack:
    """One stack under the XDG folders of the test, with a port of its own."""

    def __init__(self, name: str, model: Path, context: int = 2048) -> None:
        self.engine = EmbeddedEngine()
        port = free_port()
        self.plan = Plan(
            name=name,
            engine="embedded",
            headline="The embedded engine, for a test",
            gpus=(),
            skipped=(),
            model=ModelPlan(
                name="smollm2-135m",
                catalogued=None,
                path=str(model),
                context=context,
                trained_context=None,
            ),
            endpoint=EndpointPlan(bind="127.0.0.1", port=port, host="127.0.0.1"),
            client=None,
            threads=1,
        )

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def folder(self) -> Path:
        return paths.stack(self.name)

    @property
    def url(self) -> str:
        return self.plan.endpoint.url

    @property
    def key(self) -> str:
        key = keys.read_key(self.name)
        assert key is not None
        return key

    def up(self) -> StackStatus:
        return self.engine.up(self.plan, Silent())

    def down(self) -> bool:
        return self.engine.down(self.name, Silent())

    def status(self) -> StackStatus:
        return self.engine.status(self.name)

    def pids(self) -> dict[str, int]:
        """The pid of every living service."""
        return {one.name: one.pid for one in self.status().services if one.pid is not None}

    def bring_up_elsewhere(self, folder: Path) -> subprocess.Popen[str]:
        """`up` in a process of its own, as a user's shell runs it; its steps on its stdout."""
        from zluda_stack.plan.types import to_json

        plan_file = folder / f"{self.name}.json"
        plan_file.write_bytes(to_json(self.plan))
        return subprocess.Popen(
            [sys.executable, str(BRING_UP), str(plan_file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def own_xdg_folders(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let everything that zluda-stack keeps be under `folder`."""
    for kind in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(folder / kind.lower()))
    monkeypatch.setenv("HOME", str(folder))


@pytest.fixture
def stack(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedStack]:
    """A stack that was never started."""
    own_xdg_folders(monkeypatch, tmp_path)
    made = EmbeddedStack("one", gguf)
    yield made
    made.down()


@pytest.fixture(scope="module")
def running(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStack]:
    """A running stack that the tests of a module only ask, so that they may share it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        own_xdg_folders(monkeypatch, tmp_path_factory.mktemp("running"))
        made = EmbeddedStack("shared", gguf)
        made.up()
        yield made
        made.down()


@pytest.fixture
def endless_model(tmp_path: Path) -> Path:
    """A file that takes for ever to load: opening it waits for a writer that never comes."""
    path = tmp_path / "endless.gguf"
    os.mkfifo(path)
    return path
