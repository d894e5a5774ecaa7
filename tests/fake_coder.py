"""A scripted model server that uses a client's tools, where a real model decides by itself."""

from __future__ import annotations

import json
import secrets
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Decide = Callable[[Json], Json]


def text(words: str) -> Json:
    """A block in which the model says `words`."""
    return {"type": "text", "text": words}


def call(tool: str, **arguments: object) -> Json:
    """A block in which the model calls `tool`."""
    return {"type": "tool_use", "name": tool, "input": arguments}


def in_order(*blocks: Json) -> Decide:
    """Answer a conversation with `blocks`, one a request; requests without tools with words."""

    def decide(body: Json) -> Json:
        if not body.get("tools"):
            return text("A title")
        said = sum(message["role"] == "assistant" for message in body["messages"])
        block: Json = blocks[said]
        return block

    return decide


class FakeCoder:
    """llama.cpp's server as far as /v1/messages goes, on a UNIX socket."""

    def __init__(self, path: Path, decide: Decide, context: int = 65536) -> None:
        self.requests: list[Json] = []
        self._path = path
        handler = type("Handler", (_Handler,), {"coder": self, "context": context})
        self.decide = decide
        self._server = socketserver.ThreadingUnixStreamServer(str(path), handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._path.unlink(missing_ok=True)


class _Handler(BaseHTTPRequestHandler):
    coder: FakeCoder
    context: int

    def do_GET(self) -> None:
        entry = {"id": "default", "aliases": ["default"], "meta": {"n_ctx": self.context}}
        known = {
            "/health": {"status": "ok"},
            "/props": {"total_slots": 4},
            "/v1/models": {"object": "list", "data": [entry]},
        }
        found = known.get(self.path)
        self._answer(200 if found else 404, "application/json", json.dumps(found or {}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.partition("?")[0]
        if path == "/v1/messages/count_tokens":
            self._answer(200, "application/json", '{"input_tokens": 1000}')
            return
        if path != "/v1/messages":
            self._answer(404, "application/json", '{"error": {"message": "File Not Found"}}')
            return
        self.coder.requests.append(body)
        events = _events(self.coder.decide(body), body["model"])
        told = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self._answer(200, "text/event-stream", "".join(told))

    def _answer(self, status: int, kind: str, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: there is no address of a client to begin with."""


def _events(block: Json, model: str) -> Iterator[Json]:
    """A stream; its ids are new ones: the client takes an answer with an old one for that."""
    is_call = block["type"] == "tool_use"
    usage = {"input_tokens": 1000, "output_tokens": 0}
    message: Json = {
        "id": f"chatcmpl-{secrets.token_hex(8)}",
        "type": "message",
        "role": "assistant",
    }
    message |= {"content": [], "model": model, "usage": usage}
    yield {"type": "message_start", "message": message}
    if is_call:
        opened = {**block, "id": f"call_{secrets.token_hex(8)}", "input": {}}
        raw = json.dumps(block["input"])
        pieces = [raw[at : at + 7] for at in range(0, len(raw), 7)]
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    else:
        opened, deltas = text(""), [{"type": "text_delta", "text": block["text"]}]
    yield {"type": "content_block_start", "index": 0, "content_block": opened}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = {"stop_reason": "tool_use" if is_call else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}
