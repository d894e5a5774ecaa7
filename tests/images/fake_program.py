#!/usr/bin/env python3
"""A fake of llama.cpp's server for a container with Python: it answers, and computes nothing.

It says in its log that it has a card, and streams as many pieces as it is asked for. Under the
fake rocprofv3 it writes what the real one's library would when the server ends in order.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_HEAD = '"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n'
_DEVICES = "Available devices:\n  ROCm0: a fake"
_DEVICE = {"ROCm0": "gfx90a:sramecc+:xnack-", "CUDA0": "compute capability 8.8"}
_LOG = "  Device 0: a fake, {}\nload_tensors: offloaded 31/31 layers to GPU"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked = 0

    def do_GET(self) -> None:
        listed = [{"id": "fake", "object": "model", "owned_by": "llamacpp"}]
        found: dict[str, dict[str, Any]] = {
            "/props": {"total_slots": 1},
            "/v1/models": {"object": "list", "data": listed},
        }
        self._json(found.get(self.path, {"status": "ok"}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            self._json({"prompt": ""})
            return
        type(self).asked += 1
        if not body.get("stream"):
            time.sleep(0.2)  # so that requests at once meet
            message = {"role": "assistant", "content": os.environ["HOSTNAME"]}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 30, "completion_tokens": 1, "total_tokens": 31}
            self._json({"object": "chat.completion", "choices": [choice], "usage": usage})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        count = int(body["max_tokens"])
        for number in range(count):
            finish = "length" if number == count - 1 else None
            self._event(choices=[{"index": 0, "delta": {"content": "a "}, "finish_reason": finish}])
            time.sleep(0.001)
        self._event(choices=[], usage={"prompt_tokens": 30, "completion_tokens": count})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, **fields: Any) -> None:
        event = {"id": "x", "object": "chat.completion.chunk", "model": "fake", **fields}
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def _json(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Page(BaseHTTPRequestHandler):
    """The web page of the webui profile; it says which of its settings it was given."""

    def do_GET(self) -> None:
        login = Path("/run/secrets/webui_login")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"a page for {login.read_text() if login.exists() else 'all'}".encode())


def _show_page(port: int) -> None:
    server = ThreadingHTTPServer(("0.0.0.0", port), _Page)  # noqa: S104 -- in a container
    threading.Thread(target=server.serve_forever, daemon=True).start()


def _serve(port: int) -> None:
    server = ThreadingHTTPServer(("0.0.0.0", port), _Handler)  # noqa: S104 -- in a container
    ending = threading.Thread(target=server.shutdown)
    signal.signal(signal.SIGTERM, lambda *_: ending.start())
    print(_LOG.format(_DEVICE[os.environ["DEVICE"]]), flush=True)
    server.serve_forever()


def _write_counted(folder: Path) -> None:
    """One kernel for all that was asked, as rocprofv3's files are called and made up."""
    kernel = f'"void fake_kernel<64>(char const*, int)",{_Handler.asked},9000,9,100.0,1,2,3\n'
    (folder / "server_kernel_stats.csv").write_text(_HEAD + kernel)
    (folder / "server_agent_info.csv").write_text('"Node_Id"\n0\n')


if __name__ == "__main__":
    if sys.argv[1:] == ["--list-devices"]:
        print(_DEVICES)
        sys.exit()
    if "PAGE_PORT" in os.environ:
        _show_page(int(os.environ["PAGE_PORT"]))
    _serve(int(sys.argv[sys.argv.index("--port") + 1]))
    if "FAKE_ROCPROF" in os.environ:
        _write_counted(Path(os.environ["FAKE_ROCPROF"]))
