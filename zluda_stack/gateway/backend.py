"""What stands behind the endpoint, as those see it who answer a request."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from zluda_stack.gateway.answer import Answer
from zluda_stack.gateway.auth import CREDENTIALS
from zluda_stack.gateway.exchange import Exchange
from zluda_stack.gateway.headers import end_to_end
from zluda_stack.gateway.streams import Patience
from zluda_stack.gateway.upstream import Upstream

# Answers are edited, so they must come as they are.
_ENCODING = b"accept-encoding"


@dataclass(frozen=True)
class Backend:
    """The model servers, as one request sees them; `openai_only` when they speak that API only."""

    upstream: Upstream
    patience: Patience
    openai_only: bool

    def send(
        self, exchange: Exchange, content: bytes, target: bytes | None = None
    ) -> AbstractAsyncContextManager[Answer]:
        """The answer to `content` at `target` (without one: at that of the exchange).

        Its body is not read yet. Leaving the context stops the work. A stream of the client can
        begin while it is entered: whatever a request has to wait for belongs in there.
        Entering raises Fault.
        """
        headers = [
            pair
            for pair in end_to_end(exchange.headers)
            if pair[0] not in CREDENTIALS and pair[0] != _ENCODING
        ]
        return self.upstream.send(exchange.method, target or exchange.target, headers, content)
