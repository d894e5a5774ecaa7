"""Passes a request that the endpoint does not know to the model server, and its answer back."""

from __future__ import annotations

from http import HTTPStatus

from zluda_stack.gateway.backend import Backend
from zluda_stack.gateway.events import WholeEvents
from zluda_stack.gateway.exchange import Exchange
from zluda_stack.gateway.failures import StillLoading
from zluda_stack.gateway.headers import end_to_end
from zluda_stack.gateway.refusals import fault_of


async def forward(exchange: Exchange, content: bytes, backend: Backend) -> None:
    """Let the model server answer. Raises Fault."""
    async with backend.send(exchange, content) as response:
        headers = end_to_end(response.headers)
        if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
            raise StillLoading
        if not response.is_event_stream:
            data = await response.read()
            if response.is_error:
                raise fault_of(exchange.dialect, response.status_code, data)
            await exchange.respond(response.status_code, headers, data)
            return
        await exchange.start_stream(response.status_code, headers)
        events = WholeEvents()
        async for chunk in response.chunks:
            await exchange.stream(events.feed(chunk))
        await exchange.end_stream(events.rest())
