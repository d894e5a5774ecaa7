"""Passes a request to the model server and its answer back, as bytes."""

from __future__ import annotations

import httpx

from zluda_stack.gateway.auth import CREDENTIALS
from zluda_stack.gateway.errors import Fault
from zluda_stack.gateway.events import WholeEvents
from zluda_stack.gateway.exchange import Exchange
from zluda_stack.gateway.headers import Headers, end_to_end
from zluda_stack.gateway.refusals import fault_of
from zluda_stack.gateway.upstream import LOADING, Upstream


async def forward(exchange: Exchange, content: bytes, upstream: Upstream) -> None:
    """Let `upstream` answer. Raises Fault."""
    headers = [pair for pair in end_to_end(exchange.headers) if pair[0] not in CREDENTIALS]
    async with upstream.send(exchange.method, exchange.target, headers, content) as response:
        if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            raise Fault(503, LOADING)  # llama.cpp says it in no dialect of a client
        answer_headers = end_to_end((name.lower(), value) for name, value in response.headers.raw)
        if _is_stream(response):
            await _pass_stream(exchange, response, answer_headers)
        else:
            # Read whole before its first byte is passed on: it can still become an error.
            data = b"".join([chunk async for chunk in response.aiter_raw()])
            if response.is_error and (
                fault := fault_of(exchange.dialect, response.status_code, data)
            ):
                raise fault
            await exchange.respond(response.status_code, answer_headers, data)


def _is_stream(response: httpx.Response) -> bool:
    content_type: str = response.headers.get("content-type", "")
    return content_type.startswith("text/event-stream")


async def _pass_stream(exchange: Exchange, response: httpx.Response, headers: Headers) -> None:
    await exchange.start_stream(response.status_code, headers)
    events = WholeEvents()
    async for chunk in response.aiter_raw():
        await exchange.stream(events.feed(chunk))
    await exchange.end_stream(events.rest())
