"""The ASGI application: checks the key, passes bytes both ways, tells failures in the dialect.

Who answers which path is in dispatch.py. What a client must be able to rely on is here: that a
failure is told in its dialect, and that a client which goes away stops the work at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable
from typing import Any

from zluda_stack.gateway.admission import Wish
from zluda_stack.gateway.affinity import Opening, opening
from zluda_stack.gateway.auth import Keys
from zluda_stack.gateway.backend import Backend
from zluda_stack.gateway.capture import Capture
from zluda_stack.gateway.cors import Cors
from zluda_stack.gateway.description import DESCRIPTION, answer_description
from zluda_stack.gateway.dispatch import answerer
from zluda_stack.gateway.errors import Fault
from zluda_stack.gateway.exchange import HEALTH, ClientGone, Exchange, Receive, Scope, Send
from zluda_stack.gateway.headers import require_plain
from zluda_stack.gateway.metrics import CONTENT_TYPE, METRICS, Metrics
from zluda_stack.gateway.page_answer import answer_page
from zluda_stack.gateway.pool import Pool
from zluda_stack.gateway.quota import Quotas
from zluda_stack.gateway.routes import computes, require_known
from zluda_stack.gateway.streams import Patience
from zluda_stack.gateway.template_check import TemplateCheck
from zluda_stack.gateway.upstream import Upstream
from zluda_stack.keyring import Key

BODY_LIMIT = 32 * 1024 * 1024

_FAREWELL_SECONDS = 2.0
_PROBES = frozenset({"/", "/api/hello"})
_LOOKS = ("GET", "HEAD")

_log = logging.getLogger(__name__)


class Gateway:
    """The endpoint as an ASGI 3 application."""

    def __init__(
        self,
        pool: Pool,
        keys: Keys,
        *,
        body_limit: int = BODY_LIMIT,
        openai_only: bool = False,
        patience: Patience | None = None,
        cors: Cors | None = None,
        capture: Capture | None = None,
    ) -> None:
        self._cors = cors or Cors()
        self._capture = capture
        self._metrics = Metrics(pool)
        self._openai_only = openai_only
        self._templates = TemplateCheck()
        self._patience = patience or Patience()
        self._pool = pool
        self._keys = keys
        self._quotas = Quotas()
        self._body_limit = body_limit
        self._open: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event of the server."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await self._http(Exchange(scope, receive, send))

    def close(self) -> None:
        """Begin the end: what still waits for a model server is told to come again."""
        self._pool.admission.close()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        looking = [asyncio.ensure_future(self._pool.watch())]
        if not self._openai_only:
            looking.append(asyncio.ensure_future(self._templates.run(self._pool)))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in looking:
            task.cancel()
        if self._open:  # cancelled by the server just now: let each tell its client why
            await asyncio.wait(self._open, timeout=_FAREWELL_SECONDS)
        self._pool.close()
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
            self._metrics.count_abort(exchange)
        except RecursionError:  # blocks within blocks: the decoder itself goes deeper than we can
            await exchange.fail(Fault(400, "the request is nested too deeply"))
        except asyncio.CancelledError:
            await exchange.fail(Fault(503, "the endpoint is shutting down"))
            raise
        except Exception:
            exchange.outcome = "internal error"
            _log.exception("%s failed", exchange.request_id)
            await exchange.fail(Fault(500, "the endpoint failed; its log says why"))
        finally:
            exchange.log()
            self._metrics.count(exchange)
            if exchange.key is not None:
                self._quotas.count_tokens(exchange.key, exchange.work.usage.spent)

    async def _answer(self, exchange: Exchange) -> None:
        exchange.own_headers = self._cors.headers(exchange.headers)
        preflight = self._cors.preflight(exchange.method, exchange.headers)
        if preflight is not None:
            await exchange.respond(204, preflight, b"")
        elif exchange.method == "HEAD" and exchange.path in _PROBES:
            await exchange.respond(200, [], b"")
        elif not exchange.path.startswith("/"):
            raise Fault(400, "the request target must be a path")
        elif exchange.path == HEALTH and exchange.method in _LOOKS:
            await self._health(exchange)
        elif exchange.method == "GET" and exchange.path == "/":
            await answer_page(exchange, self._pool, self._templates.findings)
        elif exchange.method in _LOOKS and exchange.path == DESCRIPTION:
            await answer_description(exchange)
        else:
            exchange.key = self._keys.require(exchange.headers)
            await self._answer_owner_of(exchange.key, exchange)

    async def _answer_owner_of(self, key: Key, exchange: Exchange) -> None:
        if exchange.method in _LOOKS and exchange.path == METRICS:
            headers = [(b"content-type", CONTENT_TYPE)]
            await exchange.respond(200, headers, self._metrics.exposition(key))
            return
        require_known(exchange.method, exchange.path)
        require_plain(exchange.headers)
        if computes(exchange.method, exchange.path):
            self._quotas.count_request(key)
        await exchange.unless_client_leaves(await self._work(key, exchange))

    async def _work(self, key: Key, exchange: Exchange) -> Awaitable[None]:
        """What is to be done for a request, whose body is read and kept by nothing else."""
        content = await exchange.read_body(self._body_limit)
        if self._capture is not None:
            exchange.recording = self._capture.recording(exchange.request_id)
            exchange.recording.request(content)
        answer = answerer(exchange.method, exchange.path)
        return answer(exchange, content, self._backend(key, exchange, content))

    def _backend(self, key: Key, exchange: Exchange, content: bytes) -> Backend:
        """What answers one request. What it asks for is read where it matters only."""
        asked = opening(exchange.headers, content) if self._pool.chooses else Opening()
        upstream = Upstream(
            self._pool, Wish(key.name, asked.model, asked.conversation), exchange.work
        )
        return Backend(upstream, self._patience, self._openai_only)

    async def _health(self, exchange: Exchange) -> None:
        fault = await self._pool.ready()
        told = {"status": "unavailable", "message": fault.message} if fault else {"status": "ok"}
        headers = [(b"content-type", b"application/json")]
        await exchange.respond(fault.status if fault else 200, headers, json.dumps(told).encode())
