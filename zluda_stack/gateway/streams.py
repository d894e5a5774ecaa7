"""A streamed answer: begun in time, kept alive while the model is silent, ended in its dialect.

Measured on 2026-11-30: Claude Code gives up after 300 seconds without an event, llama.cpp's
server sends nothing for a request that waits for a slot and a comment every 30 seconds while it
reads a prompt.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol

from zluda_stack.gateway.answer import Answer
from zluda_stack.gateway.exchange import Exchange
from zluda_stack.gateway.failures import NotRunning, StillLoading
from zluda_stack.gateway.headers import Headers, end_to_end
from zluda_stack.gateway.refusals import fault_of

_HEADERS: Headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
_LLAMA_KEEP_ALIVE = b":\n\n"

Open = Callable[[], AbstractAsyncContextManager[Answer]]
_Opened = tuple[Answer, AsyncIterator[bytes], bytes]  # the answer, its chunks, the first of them


class StreamEditor(Protocol):
    """Turns the chunks of the model server's stream into those of the client's."""

    ping: bytes  # what says nothing, for clients that count the seconds

    @property
    def complete(self) -> bool:
        """True once the server's last event has been fed."""

    def begin(self, input_tokens: int) -> bytes:
        """What tells the client that its stream has begun while the server is silent."""

    def feed(self, chunk: bytes) -> bytes:
        """What to send for `chunk`; always whole events."""

    def rest(self) -> bytes:
        """What to send at the end. Raises Fault when the stream is not complete."""


@dataclass(frozen=True)
class Patience:
    """How long things may take, in seconds."""

    before_start: float = 1.0  # what is refused within it is refused with its status
    between_pings: float = 10.0
    between_tries: float = 1.0  # while the model is being loaded
    for_server: float = 60.0  # until a model server that is away is given up


class _KeepAlive:
    """Sends `ping` through the stream of `exchange` whenever nothing else went for long.

    A timer and no task: nearly all streams end before their first ping.
    """

    def __init__(self, exchange: Exchange, ping: bytes, every: float) -> None:
        self._exchange = exchange
        self._ping = ping
        self._every = every
        self._pinging: asyncio.Future[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(every, self._due)

    def _due(self) -> None:
        silent = time.monotonic() - self._exchange.last_sent
        if silent >= self._every and self._exchange.streaming:
            self._pinging = asyncio.ensure_future(self._exchange.stream(self._ping))
        left = self._every - silent
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(left if left > 0 else self._every, self._due)

    async def stop(self) -> None:
        """No ping comes after this."""
        self._timer.cancel()
        if self._pinging is not None:
            self._pinging.cancel()
            await asyncio.gather(self._pinging, return_exceptions=True)


class _Late:
    """Does `begin` beside the task that makes it, when that has not come on after so long.

    When `begin` fails the task is cancelled, and `raise_failure` tells it why. A timer: nearly
    all answers come in time, and a task for each of them was a twentieth of all its CPU time.
    """

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, None]], after: float) -> None:
        self._begin = begin
        self._waits = asyncio.current_task()
        self._beginning: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(after, self._due)

    async def over(self) -> None:
        """Do not begin any more, or have it done first when it is being done. Raises Fault."""
        self._timer.cancel()
        if self._beginning is not None:
            await self._beginning

    def raise_failure(self) -> None:
        """Raises what `begin` has failed with, if it has."""
        if self._failed() and self._beginning is not None:
            self._beginning.result()

    def stop(self) -> None:
        """Do nothing from now on."""
        self._timer.cancel()
        self._waits = None
        if self._beginning is not None:
            self._beginning.cancel()

    def _failed(self) -> bool:
        task = self._beginning
        return task is not None and task.done() and not task.cancelled() and bool(task.exception())

    def _due(self) -> None:
        self._beginning = asyncio.ensure_future(self._begin())
        self._beginning.add_done_callback(self._begun)

    def _begun(self, _: asyncio.Future[None]) -> None:
        if self._failed() and self._waits is not None:
            self._waits.cancel()


class StreamedAnswer:
    """One stream on its way to the client."""

    def __init__(self, exchange: Exchange, editor: StreamEditor, patience: Patience) -> None:
        self._exchange = exchange
        self._editor = editor
        self._patience = patience

    async def run(self, open_: Open, count: Callable[[], Awaitable[int]]) -> None:
        """Pass on what `open_` answers. Raises Fault.

        `count` is awaited when the answer is late: it returns the tokens of the prompt, and
        raises Fault when the request cannot succeed.
        """
        keep_alive = _KeepAlive(self._exchange, self._editor.ping, self._patience.between_pings)
        try:
            async with AsyncExitStack() as stack:
                late = _Late(partial(self._begin, count), self._patience.before_start)
                try:
                    opened = await self._opened(stack, open_)
                    await late.over()
                except asyncio.CancelledError:
                    late.raise_failure()
                    raise
                finally:
                    late.stop()
                await self._pass(*opened)
        finally:
            await keep_alive.stop()

    async def _begin(self, count: Callable[[], Awaitable[int]]) -> None:
        input_tokens = await count()
        await self._exchange.start_stream(HTTPStatus.OK, _HEADERS)
        await self._exchange.stream(self._editor.begin(input_tokens))

    async def _opened(self, stack: AsyncExitStack, open_: Open) -> _Opened:
        give_up = time.monotonic() + self._patience.for_server
        while True:
            try:
                response = await stack.enter_async_context(open_())
            except NotRunning:
                if time.monotonic() > give_up:
                    raise
            else:
                if response.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
                    break
                await stack.aclose()  # it loads its model, however long that takes
                give_up = time.monotonic() + self._patience.for_server
            await asyncio.sleep(self._patience.between_tries)
        return response, response.chunks, await anext(response.chunks, b"")

    async def _pass(self, response: Answer, chunks: AsyncIterator[bytes], first: bytes) -> None:
        exchange, editor = self._exchange, self._editor
        if not (response.is_success and response.is_event_stream):
            data = first + b"".join([chunk async for chunk in chunks])
            raise fault_of(exchange.dialect, response.status_code, data)
        if not exchange.streaming:
            headers = end_to_end(response.headers)
            await exchange.start_stream(response.status_code, headers)
        await self._tell(editor.feed(first))
        async for chunk in chunks:
            if chunk != _LLAMA_KEEP_ALIVE and exchange.streaming:
                await self._tell(editor.feed(chunk))
        if exchange.streaming:
            await exchange.end_stream(editor.rest())

    async def _tell(self, data: bytes) -> None:
        """Send `data`, and with the last events the end: the server's own may come later."""
        if self._editor.complete:
            await self._exchange.end_stream(data + self._editor.rest())
        else:
            await self._exchange.stream(data)


async def whole_answer(
    exchange: Exchange, open_: AbstractAsyncContextManager[Answer]
) -> tuple[int, Headers, bytes]:
    """Status, headers and body of an answer that is no stream. Raises Fault.

    It is read whole before its first byte is passed on: it can still become an error.
    """
    async with open_ as response:
        if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
            raise StillLoading
        data = await response.read()
        if response.is_event_stream or not response.is_success:
            raise fault_of(exchange.dialect, response.status_code, data)
        headers = end_to_end(response.headers)
        return response.status_code, headers, data
