"""The OpenAPI description of the endpoint, at /openapi.json.

It is the same for every installation, so no key is asked for. Held to what the endpoint answers
by tests/unit/test_property_endpoint.py.
"""

from __future__ import annotations

from pathlib import Path

from zluda_stack.gateway.exchange import Exchange

DESCRIPTION = "/openapi.json"

_FILE = Path(__file__).with_name("openapi.json")


async def answer_description(exchange: Exchange) -> None:
    """Send the description."""
    headers = [(b"content-type", b"application/json")]
    await exchange.respond(200, headers, _FILE.read_bytes())
