"""How a model server can fail a request, in the words that the client gets."""

from __future__ import annotations

from zluda_stack.gateway.errors import Fault

NOT_RUNNING = "the model server is not running; `zluda-stack status` says why"
SILENT = "the model server does not answer"
LOADING = "the model is still being loaded; try again in a moment"
BROKE_OFF = (
    "the model server stopped while it worked on this request; `zluda-stack status` says why"
)


class NotRunning(Fault):
    """Nobody listens there: the request has not reached a server."""

    def __init__(self) -> None:
        super().__init__(503, NOT_RUNNING)


class BrokeOff(Fault):
    """The server ended the connection before its answer was whole."""

    def __init__(self) -> None:
        super().__init__(502, BROKE_OFF)
