"""A fake server that speaks OpenAI's API in streams, and does what a test says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.unit.served import served

Json = dict[str, Any]


@dataclass
class FakeStreams:
    """How it answers; `asked` are the bodies that came, `keys` their Authorization headers.

    `fails` is how many of the first requests it answers with an error.
    """

    gap: float = 0.001
    tokens: int = 5
    prompt_tokens: int = 30
    owner: str = "llamacpp"
    models: tuple[str, ...] = ("the-model",)
    fails: int = 0
    status: int = 500
    usage: bool = True
    whole: bool = True
    asked: list[Json] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    does: FakeStreams

    def do_GET(self) -> None:
        models = [{"id": name, "owned_by": self.does.owner} for name in self.does.models]
        self._json(200, {"data": models})

    def do_POST(self) -> None:
        self.does.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.does.keys.append(self.headers["Authorization"])
        if len(self.does.asked) <= self.does.fails:
            self._json(self.does.status, {"error": {"message": "not today"}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._event({"choices": [{"delta": {"role": "assistant", "content": None}}]})
        for _ in range(self.does.tokens):
            time.sleep(self.does.gap)
            self._event({"choices": [{"delta": {"content": " word"}}]})
        if self.does.whole:
            self._event({"choices": [{"delta": {}, "finish_reason": "length"}]})
            self._event(self._usage())
            self._send(b"data: [DONE]\n\n")
        self._send(b"")

    def _usage(self) -> Json:
        tokens = {
            "prompt_tokens": self.does.prompt_tokens,
            "completion_tokens": self.does.tokens,
            "prompt_tokens_details": {"cached_tokens": 4},
        }
        return {"choices": [], "usage": tokens if self.does.usage else None}

    def _event(self, event: Json) -> None:
        self._send(f"data: {json.dumps(event)}\n\n".encode())

    def _send(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _json(self, status: int, body: Json) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def fake_streams(does: FakeStreams) -> Iterator[int]:
    """The port of a server that does as it is told."""
    with served(type("Handler", (_Handler,), {"does": does})) as port:
        yield port
