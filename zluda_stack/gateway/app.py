"""The ASGI application: checks the key, passes bytes both ways, tells failures in the dialect.

Requests and good answers pass unparsed, but for the list of models. What a client must be able
to rely on is here: the answer of the endpoint itself while the model server is away, and that a
client which goes away stops the work at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import unquote

import httpx

from zluda_stack.gateway import errors, models
from zluda_stack.gateway.auth import CREDENTIALS, Keys
from zluda_stack.gateway.errors import Dialect, Fault
from zluda_stack.gateway.events import WholeEvents
from zluda_stack.gateway.refusals import fault_of
from zluda_stack.gateway.upstream import LOADING, Upstream

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

BODY_LIMIT = 32 * 1024 * 1024

_LOGGED_PATH = 200
_FAREWELL_SECONDS = 2.0

# RFC 9110, section 7.6.1, and what each hop sets or has answered itself.
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_OWN_RESPONSE_HEADERS = frozenset({b"date", b"server", b"request-id", b"x-request-id"})
_HEALTH = "/health"
_PROBES = frozenset({"/", "/api/hello"})

_log = logging.getLogger(__name__)


class ClientGone(Exception):
    """The client closed its connection before the answer was complete."""


class Gateway:
    """The endpoint as an ASGI 3 application."""

    def __init__(self, upstream: Upstream, keys: Keys, *, body_limit: int = BODY_LIMIT) -> None:
        self._upstream = upstream
        self._keys = keys
        self._body_limit = body_limit
        self._open: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event of the server."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await self._http(Exchange(scope, receive, send))

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self._open:  # cancelled by the server just now: let each tell its client why
            await asyncio.wait(self._open, timeout=_FAREWELL_SECONDS)
        await self._upstream.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, exchange: Exchange) -> None:
        if (task := asyncio.current_task()) is not None:
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        try:
            await self._answer(exchange)
        except Fault as fault:
            await exchange.fail(fault)
        except ClientGone:
            exchange.outcome = "client gone"
        except asyncio.CancelledError:
            await exchange.fail(Fault(503, "the endpoint is shutting down"))
            raise
        except Exception:
            exchange.outcome = "internal error"
            _log.exception("%s failed", exchange.request_id)
            await exchange.fail(Fault(500, "the endpoint failed; its log says why"))
        finally:
            exchange.log()

    async def _answer(self, exchange: Exchange) -> None:
        if exchange.method == "HEAD" and exchange.path in _PROBES:
            await exchange.respond(200, [], b"")
        elif not exchange.path.startswith("/"):
            raise Fault(400, "the request target must be a path")
        elif exchange.path == _HEALTH:
            await self._health(exchange)
        elif not self._keys.accept(exchange.headers):
            raise Fault(401, "missing or wrong API key; `zluda-stack connect` shows how to set it")
        else:
            content = await exchange.read_body(self._body_limit)
            listing = exchange.method == "GET" and _lists_models(exchange.path)
            work = self._models(exchange) if listing else self._forward(exchange, content)
            await exchange.unless_client_leaves(work)

    async def _health(self, exchange: Exchange) -> None:
        fault = await self._upstream.ready()
        told = {"status": "unavailable", "message": fault.message} if fault else {"status": "ok"}
        headers = [(b"content-type", b"application/json")]
        await exchange.respond(fault.status if fault else 200, headers, json.dumps(told).encode())

    async def _models(self, exchange: Exchange) -> None:
        async with self._upstream.send("GET", models.LIST_PATH.encode(), [], b"") as response:
            if not response.is_success:
                raise Fault(503, LOADING)
            told = models.every_name(await response.aread())
        name = exchange.path.removeprefix(models.LIST_PATH).removeprefix("/")
        if name:
            told = models.named(told, unquote(name))
        headers = [(b"content-type", b"application/json")]
        await exchange.respond(200, headers, json.dumps(told).encode())

    async def _forward(self, exchange: Exchange, content: bytes) -> None:
        headers = [pair for pair in _end_to_end(exchange.headers) if pair[0] not in CREDENTIALS]
        async with self._upstream.send(
            exchange.method, exchange.target, headers, content
        ) as response:
            if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                raise Fault(503, LOADING)  # llama.cpp says it in no dialect of a client
            answer_headers = _end_to_end(
                (name.lower(), value) for name, value in response.headers.raw
            )
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


class Exchange:
    """One request and its answer: what was asked, what was sent so far, and how it ended."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._started = time.monotonic()
        self._client = scope.get("client") or ("local", 0)
        self._status: int | None = None
        self._bytes_sent = 0
        self._streaming = False
        raw_path: bytes = scope["raw_path"]
        # Clients whose base URL ends in /v1 add their own.
        raw_path = raw_path[3:] if raw_path.startswith(b"/v1/v1/") else raw_path
        query: bytes = scope["query_string"]
        self.method: str = scope["method"]
        self.headers: Headers = list(scope["headers"])
        self.path = raw_path.decode("ascii", "replace")
        self.target = raw_path + b"?" + query if query else raw_path
        self.dialect = Dialect.of(self.path)
        self.request_id = f"req_{secrets.token_hex(12)}"
        self.outcome = "ok"

    async def read_body(self, limit: int) -> bytes:
        """The whole request body. Raises Fault 413 above `limit` bytes, and ClientGone."""
        declared = dict(self.headers).get(b"content-length", b"0")
        too_large = Fault(413, f"the request is larger than {limit // (1024 * 1024)} MB")
        if int(declared) > limit:
            raise too_large
        chunks, size, more = [], 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise too_large
            chunks.append(chunk)
            more = message.get("more_body", False)
        return b"".join(chunks)

    async def unless_client_leaves(self, work: Awaitable[None]) -> None:
        """Await `work`; when the client goes away first, cancel it at once and raise ClientGone.

        The request body must have been read.
        """
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self._client_leaves())
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ClientGone
            working.result()
        finally:
            working.cancel()
            leaving.cancel()
            await asyncio.gather(working, leaving, return_exceptions=True)

    async def _client_leaves(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def respond(self, status: int, headers: Headers, content: bytes) -> None:
        """Send a whole answer."""
        await self._start(status, [*headers, (b"content-length", b"%d" % len(content))])
        await self._body(content, more=False)

    async def start_stream(self, status: int, headers: Headers) -> None:
        """Begin an answer of unknown length."""
        self._streaming = True
        await self._start(status, headers)

    async def stream(self, chunk: bytes) -> None:
        """Send the next bytes of the stream."""
        if chunk:
            await self._body(chunk, more=True)

    async def end_stream(self, chunk: bytes = b"") -> None:
        """Send the last bytes of the stream."""
        self._streaming = False
        await self._body(chunk, more=False)

    async def fail(self, fault: Fault) -> None:
        """Tell `fault` in the caller's dialect, as an answer or as the last event of a stream."""
        self.outcome = fault.message
        if self._streaming:
            await self.end_stream(errors.event(self.dialect, fault, self.request_id))
        elif self._status is None:
            headers = [(b"content-type", b"application/json")]
            await self.respond(
                fault.status, headers, errors.body(self.dialect, fault, self.request_id)
            )

    def log(self) -> None:
        """One line about this exchange; never the query, a header or a body, nor a long path.

        Health checks leave none: they come every few seconds and would hide the rest.
        """
        if self.path == _HEALTH:
            return
        _log.info(
            "%s %s %s %s -> %s %d bytes %.3f s %s",
            self.request_id,
            self._client[0],
            self.method,
            self.path.partition("?")[0][:_LOGGED_PATH],
            self._status or "-",
            self._bytes_sent,
            time.monotonic() - self._started,
            self.outcome,
        )

    async def _start(self, status: int, headers: Headers) -> None:
        self._status = status
        identity = self.request_id.encode()
        own = [(b"request-id", identity), (b"x-request-id", identity)]
        await self._send(
            {"type": "http.response.start", "status": status, "headers": [*headers, *own]}
        )

    async def _body(self, chunk: bytes, *, more: bool) -> None:
        self._bytes_sent += len(chunk)
        await self._send({"type": "http.response.body", "body": chunk, "more_body": more})


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """`headers` (lower-case names) without those that concern one connection only."""
    headers = list(headers)
    named = {
        token.strip().lower()
        for name, value in headers
        if name == b"connection"
        for token in value.split(b",")
    }
    dropped = _HOP_BY_HOP | _OWN_RESPONSE_HEADERS | named
    return [(name, value) for name, value in headers if name not in dropped]


def _lists_models(path: str) -> bool:
    return path == models.LIST_PATH or path.startswith(models.LIST_PATH + "/")


def _is_stream(response: httpx.Response) -> bool:
    content_type: str = response.headers.get("content-type", "")
    return content_type.startswith("text/event-stream")


async def _pass_stream(exchange: Exchange, response: httpx.Response, headers: Headers) -> None:
    await exchange.start_stream(response.status_code, headers)
    events = WholeEvents()
    async for chunk in response.aiter_raw():
        await exchange.stream(events.feed(chunk))
    await exchange.end_stream(events.rest())
