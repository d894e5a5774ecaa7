"""Clients of the Messages API for benchmarks, as light as can be."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

_TOKEN = b'"text_delta"'
_END = b"message_stop"
_PINGS = (b"event: ping", b"\n:")


@dataclass(frozen=True)
class Target:
    """Where clients ask, and with which key."""

    port: int
    key: str


@dataclass(frozen=True)
class Took:
    """One answer: seconds until the first token and until the end, and how many tokens came."""

    first: float
    total: float
    tokens: int


def body(size: int, tokens: int, *, stream: bool = True) -> bytes:
    """A request of about `size` bytes with the parts of Claude Code's, for `tokens` tokens."""
    tool = {
        "description": "What it does. " * 150,
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }
    said = [{"type": "text", "text": "say hello"}]
    asked: dict[str, Any] = {"model": "default", "max_tokens": tokens, "stream": stream}
    asked["messages"] = [{"role": "user", "content": said}]
    if size > 10_000:
        asked["system"] = [{"type": "text", "text": "You are an agent. " * 400}]
        asked["tools"] = [{"name": f"tool_{number}", **tool} for number in range(15)]
    missing = max(0, size - len(json.dumps(asked)))
    said.append({"type": "text", "text": "x" * missing})
    return json.dumps(asked).encode()


async def ask(target: Target, content: bytes) -> Took:
    """One request over a connection of its own, streamed. Raises AssertionError when refused."""
    began = time.perf_counter()
    reader, writer = await _sent(target, content)
    first, tokens, tail = 0.0, 0, b""
    while data := await reader.read(65536):
        if not tokens and _TOKEN in tail + data:
            first = time.perf_counter() - began
        seen = tail + data
        tail = seen[-len(_TOKEN) + 1 :]
        tokens += seen.count(_TOKEN)
        if _END in data or _END in seen:
            break
    assert tokens, "no token came"
    writer.close()
    return Took(first, time.perf_counter() - began, tokens)


async def _sent(
    target: Target, content: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    writer.write(
        b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"anthropic-version: 2023-06-01\r\nx-api-key: %s\r\ncontent-length: %d\r\n\r\n%s"
        % (target.key.encode(), len(content), content)
    )
    return reader, writer


async def together(target: Target, clients: int, content: bytes) -> float:
    """Tokens a second of `clients` at once."""
    began = time.perf_counter()
    answers = await asyncio.gather(*(ask(target, content) for _ in range(clients)))
    return sum(answer.tokens for answer in answers) / (time.perf_counter() - began)


async def held(target: Target, clients: int, content: bytes, seconds: float) -> tuple[int, int]:
    """How many of `clients` streams without an answer are open at the end, with a sign of life."""
    streams = [await _sent(target, content) for _ in range(clients)]
    seen = await asyncio.gather(*(_watched(reader, seconds) for reader, _ in streams))
    for _, writer in streams:
        writer.close()
    return sum(still for still, _ in seen), sum(alive for _, alive in seen)


async def _watched(reader: asyncio.StreamReader, seconds: float) -> tuple[bool, bool]:
    deadline, seen = time.monotonic() + seconds, b""
    while (left := deadline - time.monotonic()) > 0:
        try:
            data = await asyncio.wait_for(reader.read(65536), left)
        except asyncio.TimeoutError:
            break
        if not data:
            return False, False
        seen += data
    return True, any(ping in seen for ping in _PINGS)


async def abandon(target: Target, content: bytes, after: float) -> float:
    """Ask, leave after so many seconds, and return the moment by time.monotonic()."""
    _, writer = await _sent(target, content)
    await asyncio.sleep(after)
    writer.transport.abort()
    return time.monotonic()
