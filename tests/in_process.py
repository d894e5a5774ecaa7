"""The endpoint in the process of the test, where its patience can be made short."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from tests.running_gateway import KEY
from zluda_stack.gateway.app import Gateway
from zluda_stack.gateway.auth import KeyFile, Keys
from zluda_stack.gateway.pool import Pool
from zluda_stack.gateway.server import Server
from zluda_stack.gateway.streams import Patience

IMPATIENT = Patience(before_start=0.4, between_pings=0.15, between_tries=0.05, for_server=0.6)


class Answer:
    """What a client got: status, headers (lower-case names), and the chunks of the body."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []

    async def take(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            pairs = message["headers"]
            self.headers = {name.decode(): value.decode() for name, value in pairs}
        elif message["body"]:
            self.chunks.append(message["body"])

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[dict[str, Any]]:
        """The data of each event of Anthropic's stream, whose name must be that of its type."""
        found = []
        for event in self.body.decode().split("\n\n")[:-1]:
            name, data = event.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
        return found


def ask(
    folder: Path,
    path: str,
    body: bytes,
    *,
    method: str = "POST",
    query: str = "",
    headers: dict[str, str] | None = None,
    openai_only: bool = False,
) -> Answer:
    """What a request gets from an endpoint whose model server is at `folder`/model.sock."""
    key_file = folder / "key"
    key_file.write_text(KEY)
    server = Server(f"unix:{folder / 'model.sock'}", model=None, slots=4)
    gateway = Gateway(
        Pool([server], queue=4),
        Keys(KeyFile.of_keys(key_file)),
        openai_only=openai_only,
        patience=IMPATIENT,
    )
    pairs = {"x-api-key": KEY, **(headers or {})}
    scope = {
        "type": "http",
        "method": method,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in pairs.items()],
    }
    return asyncio.run(_asked(gateway, scope, body))


async def _asked(gateway: Gateway, scope: dict[str, Any], body: bytes) -> Answer:
    answer = Answer()
    inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    inbox.put_nowait({"type": "http.request", "body": body, "more_body": False})
    await gateway(scope, inbox.get, answer.take)
    return answer
