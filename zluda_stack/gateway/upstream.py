"""The model server behind the endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from zluda_stack.gateway.errors import Fault

_CONNECT_SECONDS = 5.0
_HEALTH_SECONDS = 5.0

NOT_RUNNING = "the model server is not running; `zluda-stack status` says why"
SILENT = "the model server does not answer"
LOADING = "the model is still being loaded; try again in a moment"
BROKE_OFF = (
    "the model server stopped while it worked on this request; `zluda-stack status` says why"
)


class Upstream:
    """One model server, reached over TCP (`http://host:port`) or a UNIX socket (`unix:path`).

    Connections are not kept: a kept one may be closed by the server just as the next request
    is written to it, and a fresh one over a UNIX socket costs about 0.1 ms.
    """

    def __init__(self, address: str) -> None:
        socket_path = address.removeprefix("unix:") if address.startswith("unix:") else None
        self._base = httpx.URL("http://model-server" if socket_path else address)
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(
                uds=socket_path,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
                trust_env=False,
            ),
            timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
            trust_env=False,
        )

    @asynccontextmanager
    async def send(
        self,
        method: str,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        content: bytes,
    ) -> AsyncIterator[httpx.Response]:
        """The server's answer to one request, its body not read yet.

        Leaving the context closes the connection, which is how the server learns that nobody
        waits any more. Raises Fault when the server is not there or breaks off.
        """
        # As an extension, so that the target goes out byte for byte: a URL would normalise it.
        request = httpx.Request(
            method, self._base, headers=headers, content=content, extensions={"target": target}
        )
        try:
            response = await self._client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Fault(503, NOT_RUNNING) from error
        except httpx.TransportError as error:
            raise Fault(502, BROKE_OFF) from error
        try:
            yield response
        except httpx.TransportError as error:
            raise Fault(502, BROKE_OFF) from error
        finally:
            await response.aclose()

    async def ready(self) -> Fault | None:
        """None when the server has loaded its model and answers, else what is missing."""
        try:
            return await asyncio.wait_for(self._health(), _HEALTH_SECONDS)
        except asyncio.TimeoutError:
            return Fault(503, SILENT)
        except Fault as fault:
            return Fault(503, fault.message)

    async def _health(self) -> Fault | None:
        async with self.send("GET", b"/health", [], b"") as response:
            return None if response.is_success else Fault(503, LOADING)

    async def aclose(self) -> None:
        """Close what is open."""
        await self._client.aclose()
