"""The endpoint as a process that logs everything (loud_gateway.py), before a moody model server."""

from __future__ import annotations

import http.client
import io
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from tests.fake_moods import FakeMoodyServer
from tests.hostile_requests import RIGHT_KEY, Asked


class Got:
    """An answer as it came over the wire."""

    def __init__(self, data: bytes, method: str) -> None:
        """Raises http.client.HTTPException when `data` is no whole answer."""
        response = http.client.HTTPResponse(_Replay(data), method=method)  # type: ignore[arg-type]
        response.begin()
        self.status = response.status
        self.body = response.read()
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.is_stream = self.headers.get("content-type", "").startswith("text/event-stream")


class _Replay:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


class LoudEndpoint:
    """The endpoint as a process before two replicas that are one moody model server."""

    def __init__(self, folder: Path, upstream_dialect: str) -> None:
        self.server = FakeMoodyServer(folder / "model.sock")
        self._log = folder / "log"
        (folder / "key").write_text(RIGHT_KEY + "\n")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        replica = ("--upstream", f"unix:{folder / 'model.sock'}")
        key = ("--key-file", str(folder / "key"))
        speaks = ("--upstream-dialect", upstream_dialect)
        options = ("--port", str(self._port), *key, *replica, *replica, *speaks, "--slots", "4")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.loud_gateway", *options],
            stdout=self._log.open("wb"),
            stderr=subprocess.STDOUT,
        )
        until(self._listens, self.log)
        self.files, self.tasks = self.open_files(), self.open_tasks()

    def _listens(self) -> bool:
        assert self._process.poll() is None, self.log()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def send(self, asked: Asked) -> bytes:
        """All that comes back, until the endpoint closes the connection."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=10) as connection:
            with suppress(ConnectionError):  # it may refuse a request before its end
                connection.sendall(asked.on_the_wire())
            if asked.leaves:
                return b""
            if not asked.proper:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                return connection.makefile("rb").read()
        assert not asked.is_whole
        return b""

    def log(self) -> str:
        """All that it has logged so far."""
        return self._log.read_text(errors="replace")

    def open_files(self) -> int:
        """How many files and sockets it has."""
        return psutil.Process(self._process.pid).num_fds()

    def open_tasks(self) -> int:
        """How many tasks its event loop has."""
        before = self.log().count("tasks: ")
        self._process.send_signal(signal.SIGUSR1)
        until(lambda: self.log().count("tasks: ") > before, self.log)
        return int(re.findall(r"tasks: (\d+)", self.log())[-1])

    def metrics(self) -> str:
        """What it tells Prometheus."""
        return Got(self.send(Asked("GET", "/metrics")), "GET").body.decode()

    def stop(self) -> None:
        """End it and the model server."""
        self._process.terminate()
        self._process.wait(20)
        self.server.close()


def until(holds: Callable[[], bool], told: Callable[[], object]) -> None:
    """Wait for what must become true."""
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, told()
        time.sleep(0.02)
