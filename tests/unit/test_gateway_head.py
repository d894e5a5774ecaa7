"""The head of a request: one that does not end is refused, and nothing else is taken for one."""

from __future__ import annotations

import json
import socket

import pytest

from tests.fake_upstream import whole
from tests.running_gateway import CHAT, KEY, RunningGateway, Start


def test_a_head_that_does_not_end_is_refused(gateway: RunningGateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: ")
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                raw.sendall(b"y" * 16_384)


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
