"""One request and its answer, as the ASGI server hands them over."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

from zluda_stack.gateway import errors
from zluda_stack.gateway.capture import Recording
from zluda_stack.gateway.errors import Dialect, Fault
from zluda_stack.gateway.headers import Headers
from zluda_stack.gateway.request_id import id_headers, new_id
from zluda_stack.gateway.usage import Work
from zluda_stack.keyring import Key

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

HEALTH = "/health"

_LOGGED_PATH = 200
_CANCEL_AGAIN_SECONDS = 1.0

_log = logging.getLogger(__name__)


class ClientGone(Exception):
    """The client closed its connection before the answer was complete."""


class _Leaving:
    """Cancels the task that makes it once `leaves` comes true."""

    def __init__(self, leaves: Coroutine[Any, Any, bool]) -> None:
        self._task = asyncio.current_task()
        self._again: asyncio.TimerHandle | None = None
        self._leaves = asyncio.ensure_future(leaves)
        self._leaves.add_done_callback(self._left)

    def is_cause(self) -> bool:
        """True when it was this that has cancelled the task."""
        return self._again is not None

    def stop(self) -> None:
        """Cancel nothing from now on."""
        self._leaves.cancel()
        if self._again is not None:
            self._again.cancel()

    def _left(self, leaves: asyncio.Future[bool]) -> None:
        if not leaves.cancelled() and leaves.result():
            self._cancel()

    def _cancel(self) -> None:
        # More than once: wait_for swallows a cancellation at times (CPython 86296, until 3.12).
        loop = asyncio.get_running_loop()
        self._again = loop.call_later(_CANCEL_AGAIN_SECONDS, self._cancel)
        if self._task is not None:
            self._task.cancel()


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
        self._answered = False
        self.last_sent = self._started  # by time.monotonic()
        raw_path: bytes = scope["raw_path"]
        # Clients whose base URL ends in /v1 add their own.
        raw_path = raw_path[3:] if raw_path.startswith(b"/v1/v1/") else raw_path
        query: bytes = scope["query_string"]
        self.scheme: str = scope.get("scheme", "http")
        self.method: str = scope["method"]
        self.headers: Headers = list(scope["headers"])
        self.path = raw_path.decode("ascii", "replace")
        self.query = query.decode("ascii", "replace")
        self.target = raw_path + b"?" + query if query else raw_path
        self.dialect = Dialect.of(self.path, self.headers)
        self.request_id = new_id()
        self.key: Key | None = None
        self.work = Work()
        self.own_headers: Headers = []  # that its answer carries, whatever it is
        self.recording: Recording | None = None
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
        leaving = _Leaving(self._client_leaves())
        try:
            await work
        except asyncio.CancelledError:
            if leaving.is_cause():
                raise ClientGone from None
            raise
        finally:
            leaving.stop()

    async def _client_leaves(self) -> bool:
        """Awaits that the client goes away; False when it only has its whole answer by then."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        return not self._answered  # the server calls the end of the answer a disconnect as well

    async def respond(self, status: int, headers: Headers, content: bytes) -> None:
        """Send a whole answer."""
        await self._start(status, [*headers, (b"content-length", b"%d" % len(content))])
        await self._body(content, more=False)

    @property
    def status(self) -> int | None:
        """The status of the answer, None until it has begun."""
        return self._status

    @property
    def streaming(self) -> bool:
        """True from the first byte of a stream to its last."""
        return self._streaming

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
            if fault.retry_after is not None:
                headers.append((b"retry-after", b"%d" % fault.retry_after))
            if fault.allow is not None:
                headers.append((b"allow", fault.allow.encode()))
            await self.respond(
                fault.status, headers, errors.body(self.dialect, fault, self.request_id)
            )

    def log(self) -> None:
        """One line about this exchange; never the query, a header or a body, nor a long path.

        Health checks leave none: they come every few seconds and would hide the rest.
        """
        if self.path == HEALTH:
            return
        _log.info(
            "%s %s %s %s -> %s %d bytes %.3f s%s %s",
            self.request_id,
            self._client[0],
            self.method,
            self.path.partition("?")[0][:_LOGGED_PATH],
            self._status or "-",
            self._bytes_sent,
            time.monotonic() - self._started,
            self._details(),
            self.outcome,
        )

    def _details(self) -> str:
        """Whose key it was, where the request went, its times there, and its tokens."""
        key, work = self.key, self.work
        told = "" if key is None else f" key={key.name}"
        if work.server is None:
            return told
        usage = work.usage
        first = "" if work.first_token is None else f" first={work.first_token:.3f}"
        tokens = f"tokens={usage.computed}+{usage.cached}+{usage.generated}"
        return f"{told} server={work.server} waited={work.waited:.3f}{first} {tokens}"

    async def _start(self, status: int, headers: Headers) -> None:
        self._status = status
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*headers, *id_headers(self.request_id), *self.own_headers],
            }
        )

    async def _body(self, chunk: bytes, *, more: bool) -> None:
        self._bytes_sent += len(chunk)
        if self.recording is not None:
            self.recording.answer(chunk)
        self.last_sent = time.monotonic()
        self._answered = not more
        await self._send({"type": "http.response.body", "body": chunk, "more_body": more})
