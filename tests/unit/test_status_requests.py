"""What `zluda-stack status` says of the requests that a running stack answers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from tests.fake_upstream import FakeModelServer, whole
from tests.running_gateway import KEY, RunningGateway
from tests.unit.command_line import run, settle, write
from tests.unit.planning import host, plan_for
from zluda_stack import paths
from zluda_stack.engines.base import StackStatus, State
from zluda_stack.engines.embedded.engine import EmbeddedEngine
from zluda_stack.plan.types import to_json


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningGateway]:
    """The endpoint of the stack two, whose processes are said to live."""
    settle(tmp_path / "home", monkeypatch)
    running = RunningGateway(tmp_path, 2, "--slots", "2")
    plan = plan_for(host("laptop-without-gpu-or-docker"), name="two")
    endpoint = structs.replace(plan.endpoint, port=running.port)
    write(paths.stack("two") / "plan.json", to_json(structs.replace(plan, endpoint=endpoint)))
    write(paths.stack("two") / "api-key", KEY).chmod(0o600)

    def status(*_: object) -> StackStatus:
        return StackStatus(name="two", engine="embedded", state=State.RUNNING, healthy=True)

    monkeypatch.setattr(EmbeddedEngine, "status", status)
    yield running
    running.stop()


def test_status_counts_what_is_computed_and_what_waits(gateway: RunningGateway) -> None:
    go_on = threading.Event()

    async def held(writer: asyncio.StreamWriter) -> None:
        while not go_on.is_set():
            await asyncio.sleep(0.01)
        await whole(b"{}")(writer)

    server = FakeModelServer(gateway.socket, {"/health": whole(b'{"status":"ok"}'), "": held})
    try:
        assert "requests now: 0 computed (2 at a time), 0 waiting" in told()
        connections = [gateway.connect() for _ in range(3)]
        for connection in connections:
            connection.request("POST", "/completion", b"{}", {"x-api-key": KEY})
        until_told("requests now: 2 computed (2 at a time), 1 waiting")
        found = run("status", "--name", "two", "--json").json["requests"]
        assert found == {"running": 2, "places": 2, "waiting": 1}
        go_on.set()
        assert [connection.getresponse().status for connection in connections] == [200] * 3
    finally:
        go_on.set()
        server.close()


def test_status_goes_on_where_the_endpoint_does_not_say(gateway: RunningGateway) -> None:
    write(paths.stack("two") / "api-key", "zs-another-key").chmod(0o600)
    assert "requests now" not in told()
    gateway.stop()
    assert run("status", "--name", "two", "--json").json["requests"] is None


def told() -> str:
    done = run("status", "--name", "two")
    assert done.code == 0
    return done.out


def until_told(line: str) -> None:
    deadline = time.monotonic() + 10
    while line not in told():
        assert time.monotonic() < deadline, told()
        time.sleep(0.05)
