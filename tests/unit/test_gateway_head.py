"""The head of a request: one that does not end is refused, and nothing else is taken for one."""

from __future__ import annotations

import asyncio
import json
import socket
from http.client import HTTPResponse
from typing import Any

import pytest
import uvicorn

from tests import described
from tests.fake_upstream import whole
from tests.running_gateway import CHAT, KEY, RunningGateway, Start
from zluda_stack.gateway.one_write import OneWriteProtocol


def test_a_head_that_does_not_end_is_refused(gateway: RunningGateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: ")
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                raw.sendall(b"y" * 16_384)


def answer_to(gateway: RunningGateway, raw_request: bytes) -> tuple[HTTPResponse, Any]:
    """What comes back for bytes as they are, until the connection ends."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as raw:
        raw.sendall(raw_request)
        response = HTTPResponse(raw)
        response.begin()
        return response, json.loads(response.read())


@pytest.mark.parametrize(
    ("raw_request", "dialect"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "OpenAI"),  # TLS where there is none
        (b"SSH-2.0-OpenSSH_9.2\r\n", "OpenAI"),
        (b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nno header\r\n\r\n", "Anthropic"),
        (b"GET / HTTP/1.1\r\nAnthropic-Version: 1\r\nContent-Length: x\r\n\r\n", "Anthropic"),
    ],
)
def test_what_is_no_http_gets_an_error_like_every_other(
    gateway: RunningGateway, raw_request: bytes, dialect: str
) -> None:
    response, told = answer_to(gateway, raw_request)
    assert response.status == 400
    assert response.headers["content-type"] == "application/json"
    assert response.headers["connection"] == "close"
    assert described.faults_of_error(dialect, json.dumps(told).encode()) == []
    request_id = response.headers["request-id"]
    assert request_id == response.headers["x-request-id"]
    assert f"{request_id} 127.0.0.1 -> 400 " in gateway.log.read_text()


@pytest.mark.parametrize("size", [70_000, 300_000, 3_000_000])
def test_a_large_body_is_no_head(gateway: RunningGateway, model_server: Start, size: int) -> None:
    server = model_server(whole(b"{}"))
    connection = gateway.connect()
    for _ in range(3):
        ask = json.dumps({"prompt": "x" * size}).encode()
        connection.request("POST", CHAT, ask, {"x-api-key": KEY})
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"{}")
        assert server.requests[-1][1] == ask


class Hasty(OneWriteProtocol):
    head_seconds = 0.3


async def slow_app(scope: Any, receive: Any, send: Any) -> None:
    """Answers later than a head may come."""
    del scope, receive
    await asyncio.sleep(0.6)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def told(port: int, *pieces: bytes, pause: float) -> bytes:
    """What comes back for `pieces`, with a pause after each, until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(pause)
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    return answer


def test_a_head_that_does_not_come_ends_the_connection_and_an_answer_may_take_longer() -> None:
    async def ask() -> tuple[bytes, ...]:
        config = uvicorn.Config(slow_app, port=0, http=Hasty, log_config=None, lifespan="off")
        server = uvicorn.Server(config)
        serving = asyncio.ensure_future(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        head = b"GET / HTTP/1.1\r\nHost: x\r\n"
        whole_head = head + b"Connection: close\r\n\r\n"
        answers = await asyncio.gather(
            told(port, pause=0),
            told(port, head, pause=0),
            told(port, whole_head, pause=0),
            told(port, head + b"\r\n", head, pause=0.8),
        )
        server.should_exit = True
        await serving
        return answers

    nothing, half, whole_one, second_half = asyncio.run(ask())
    assert (nothing, half) == (b"", b"")
    assert whole_one.startswith(b"HTTP/1.1 204")
    assert second_half.count(b"HTTP/1.1 204") == 1  # the first is answered, the second never came
