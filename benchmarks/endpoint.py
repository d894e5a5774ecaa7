"""What the endpoint adds to a request of Claude Code's size: latency, and CPU time of its own.

`python -m benchmarks.endpoint [REQUESTS]` asks a scripted model server, which answers at once,
directly and through the endpoint in turn, so that both meet the same moments of the machine.
"""

from __future__ import annotations

import http.client
import json
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.fake_upstream import FakeModelServer, message_events, stream
from tests.running_gateway import KEY, MESSAGES, RunningGateway

_BODY_BYTES = 48_000
_WARM_UP = 20


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def body() -> bytes:
    """A request with the parts of Claude Code's: billing text, system, tools, a reminder."""
    tool = {
        "description": "What it does. " * 150,
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }
    asked = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 32000,
        "stream": True,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=a5145;"},
            {"type": "text", "text": "You are an agent. " * 400},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "say hello " * 200}]},
            {"role": "system", "content": [{"type": "text", "text": "# Environment " * 100}]},
        ],
        "tools": [{"name": f"tool_{number}", **tool} for number in range(15)],
    }
    missing = _BODY_BYTES - len(json.dumps(asked))
    asked["system"].append({"type": "text", "text": "x" * missing})  # type: ignore[attr-defined]
    return json.dumps(asked).encode()


def _seconds(connection: http.client.HTTPConnection, content: bytes) -> float:
    began = time.perf_counter()
    connection.request("POST", MESSAGES, content, {"x-api-key": KEY})
    answer = connection.getresponse()
    assert answer.status == 200
    answer.read()
    took = time.perf_counter() - began
    connection.close()
    return took


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measure(requests: int) -> dict[str, float]:
    """Milliseconds: both medians, their difference, and the CPU time of the endpoint."""
    content = body()
    with tempfile.TemporaryDirectory() as folder:
        gateway = RunningGateway(Path(folder), drain=1)
        server = FakeModelServer(gateway.socket, stream(*message_events("Hello", " there")))
        process = psutil.Process(gateway.process.pid)
        direct: list[float] = []
        through: list[float] = []
        try:
            for number in range(_WARM_UP + requests):
                if number == _WARM_UP:
                    before = _cpu(process)
                direct.append(_seconds(_UnixConnection(gateway.socket), content))
                through.append(_seconds(gateway.connect(), content))
            cpu = (_cpu(process) - before) / requests
        finally:
            server.close()
            gateway.stop()
    medians = statistics.median(direct[_WARM_UP:]), statistics.median(through[_WARM_UP:])
    return {
        "direct, median": medians[0] * 1000,
        "through the endpoint, median": medians[1] * 1000,
        "added": (medians[1] - medians[0]) * 1000,
        "CPU of the endpoint a request": cpu * 1000,
    }


def main() -> None:
    """Print the measures."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    for what, value in measure(requests).items():
        print(f"{what:<35} {value:>8.2f} ms")


if __name__ == "__main__":
    main()
