"""How a model server can fail a request, in the words that the client gets."""

from __future__ import annotations

from zluda_stack.gateway.errors import Fault

NOT_RUNNING = "the model server is not running; `zluda-stack status` says why"
SILENT = "the model server does not answer"
LOADING = "the model is still being loaded; try again in a moment"
BROKE_OFF = (
    "the model server stopped while it worked on this request; `zluda-stack status` says why"
)


# The official Python clients come again twice, Claude Code ten times.
_LOADING_SECONDS = 15


class StillLoading(Fault):
    """The server loads its model.

    429 and not 503: Claude Code waits as long as Retry-After says, and gives up a 503 after
    190 seconds (measured 2026-11-30).
    """

    def __init__(self) -> None:
        super().__init__(429, LOADING, retry_after=_LOADING_SECONDS)


class NotRunning(Fault):
    """Nobody listens there: the request has not reached a server."""

    def __init__(self) -> None:
        super().__init__(503, NOT_RUNNING)


class BrokeOff(Fault):
    """The server ended the connection before its answer was whole."""

    def __init__(self) -> None:
        super().__init__(502, BROKE_OFF)


class OtherShape(Fault):
    """What the server says is not as its API has it."""

    def __init__(self, what: str = "answer") -> None:
        super().__init__(502, f"the model server's {what} has another shape")
