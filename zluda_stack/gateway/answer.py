"""What a model server answers, its body not read yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus

from zluda_stack.gateway.headers import Headers


@dataclass(frozen=True)
class Answer:
    """One answer: status, headers (lower-case names), and the body as it comes.

    `chunks` can be gone through once. Raises BrokeOff where the server breaks off.
    """

    status_code: int
    headers: Headers
    chunks: AsyncIterator[bytes]

    @property
    def is_success(self) -> bool:
        """True when the server did what was asked."""
        return HTTPStatus.OK <= self.status_code < HTTPStatus.MULTIPLE_CHOICES

    @property
    def is_error(self) -> bool:
        """True when the request or the server was at fault."""
        return self.status_code >= HTTPStatus.BAD_REQUEST

    @property
    def is_event_stream(self) -> bool:
        """True for server-sent events."""
        return dict(self.headers).get(b"content-type", b"").startswith(b"text/event-stream")

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([chunk async for chunk in self.chunks])
