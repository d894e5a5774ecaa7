"""The endpoint as a real process in front of a scripted model server, as fixtures."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fake_upstream import FakeModelServer, Play

KEY = "zs-the-right-key"
CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"

Start = Callable[[Play], FakeModelServer]


class RunningGateway:
    """The endpoint as a real process on a free port."""

    def __init__(self, folder: Path, drain: int, *more: str) -> None:
        """`more` are further options; without any, as many requests at once as a test needs."""
        self.socket = folder / "model.sock"
        self.log = folder / "gateway.log"
        key_file = folder / "key"
        key_file.write_text(KEY + "\n")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        options = {
            "--port": self.port,
            "--upstream": f"unix:{self.socket}",
            "--key-file": key_file,
            "--drain": drain,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "zluda_stack.gateway"]
            + [str(word) for pair in options.items() for word in pair]
            + list(more or ("--slots", "64")),
            stdout=self.log.open("wb"),
            stderr=subprocess.STDOUT,
        )
        while not self._listens():
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)

    def request(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = self.connect()
        connection.request(method, path, body, {"x-api-key": KEY} if headers is None else headers)
        response = connection.getresponse()
        return response, response.read()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One for all tests that do not stop it: it keeps nothing from one request to the next."""
    running = RunningGateway(tmp_path_factory.mktemp("gateway"), drain=5)
    yield running
    running.stop()


@pytest.fixture
def mortal_gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    """One to be stopped by the test."""
    running = RunningGateway(tmp_path, drain=2)
    yield running
    running.stop()


@pytest.fixture
def model_server(gateway: RunningGateway) -> Iterator[Start]:
    servers = []

    def start(play: Play) -> FakeModelServer:
        servers.append(FakeModelServer(gateway.socket, play))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Start]:
    """Starts a scripted model server for an endpoint in the process of the test."""
    servers = []

    def start(script: Play) -> FakeModelServer:
        servers.append(FakeModelServer(tmp_path / "model.sock", script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
