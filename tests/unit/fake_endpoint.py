"""An endpoint whose model has the abilities that a test gives it, where a real one has its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.unit.served import served

Json = dict[str, Any]


@dataclass(frozen=True)
class FakeModel:
    """What the model and its template can do."""

    context: int | None = 65536
    renders_system: bool = True
    renders_tools: bool = True
    calls_tools: bool = True
    arguments: str = '{"city": "Paris"}'
    modalities: tuple[str, ...] = ("text", "image")
    ends: bool = True
    own_name: str | None = None
    miscounts_by: int = 0
    status: int = 200

    def tokens(self, body: Json) -> int:
        """A token a word, of what the template does not leave out."""
        seen = [body["messages"]]
        seen += [body["system"]] if "system" in body and self.renders_system else []
        seen += [body["tools"]] if "tools" in body and self.renders_tools else []
        return len(json.dumps(seen).split())


class _Handler(BaseHTTPRequestHandler):
    model: FakeModel

    def do_GET(self) -> None:
        meta = {} if self.model.context is None else {"n_ctx": self.model.context}
        entry = {"id": "default", "meta": meta}
        entry["architecture"] = {"input_modalities": self.model.modalities}
        self._json({"status": "ok"} if self.path == "/health" else {"data": [entry]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.model.status != 200:
            self._json({"error": {"message": "no"}}, self.model.status)
        elif self.path.endswith("/count_tokens"):
            self._json({"input_tokens": self.model.tokens(body) + self.model.miscounts_by})
        elif self.path == "/v1/messages":
            self._messages(body)
        else:
            self._chat(body)

    def _calls(self, body: Json) -> bool:
        asked = body["messages"][-1]
        is_result = asked["role"] == "tool" or not isinstance(asked["content"], str)
        return self.model.calls_tools and "tools" in body and not is_result

    def _messages(self, body: Json) -> None:
        name = self.model.own_name or body["model"]
        usage = {"input_tokens": self.model.tokens(body), "output_tokens": 1}
        message = {"type": "message", "role": "assistant", "model": name, "usage": usage}
        stop = "end_turn" if self.model.ends else "max_tokens"
        text = '{"title": "Weather in Paris"}' if "output_config" in body else "Hello."
        if not body.get("stream"):
            content = [{"type": "text", "text": text}]
            self._json({**message, "content": content, "stop_reason": stop})
            return
        block: Json = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": text}]
        if self._calls(body):
            block = {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": c} for c in self.model.arguments]
        self._events(
            {"type": "message_start", "message": {**message, "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage},
            {"type": "message_stop"},
        )

    def _chat(self, body: Json) -> None:
        message: Json = {"role": "assistant", "content": "Hello."}
        if self._calls(body):
            function = {"name": "get_weather", "arguments": self.model.arguments}
            call = {"id": "call_1", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        usage = {"completion_tokens": 1}
        if not body.get("stream"):
            choice = {"message": message, "finish_reason": "stop"}
            self._json({"choices": [choice], "usage": usage})
            return
        chunk = {"choices": [{"delta": message, "finish_reason": "stop"}], "usage": usage}
        self._send(200, "text/event-stream", f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")

    def _events(self, *events: Json) -> None:
        told = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self._send(200, "text/event-stream", "".join(told))

    def _json(self, body: Json, status: int = 200) -> None:
        self._send(status, "application/json", json.dumps(body))

    def _send(self, status: int, kind: str, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def fake_endpoint(model: FakeModel) -> Iterator[int]:
    """The port of an endpoint that serves `model`."""
    with served(type("Handler", (_Handler,), {"model": model})) as port:
        yield port
