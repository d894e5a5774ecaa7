"""The event streams of OpenAI's APIs, from llama.cpp's server to the client."""

from __future__ import annotations

import msgspec

from zluda_stack.gateway import errors
from zluda_stack.gateway.errors import INCOMPLETE, Dialect, Fault
from zluda_stack.gateway.events import WholeEvents, events_of
from zluda_stack.gateway.openai_request import MODEL_FIELD
from zluda_stack.gateway.refusals import fault_of

# A comment: both official clients and browsers pass over it.
KEEP_ALIVE = b": keep-alive\n\n"

_ERROR = b'data: {"error":'
_DONE = b"data: [DONE]\n"


class OpenAiEvents:
    """What editing a stream has in common for all of OpenAI's APIs with events of one kind."""

    ping = KEEP_ALIVE

    def __init__(self) -> None:
        self._events = WholeEvents()
        self._complete = False

    @property
    def complete(self) -> bool:
        """True once the last event has passed."""
        return self._complete

    def begin(self, input_tokens: int) -> bytes:  # noqa: ARG002 -- no event here tells it
        """A comment: this dialect has no event that says nothing."""
        return KEEP_ALIVE


class ChatEvents(OpenAiEvents):
    """Edits one stream: the name of the model, and errors. `model` is the name asked for."""

    def __init__(self, model: str, request_id: str) -> None:
        super().__init__()
        self._model = b'"model":' + msgspec.json.encode(model) if model else b""
        self._request_id = request_id
        self._theirs = b""

    def feed(self, chunk: bytes) -> bytes:
        """What to send for `chunk`; always whole events."""
        data = self._events.feed(chunk)
        if self._model and data:
            data = self._renamed(data)
        if _DONE in data or _ERROR in data:
            self._complete = True
        if _ERROR in data:
            data = b"".join(map(self._told, events_of(data)))
        return data

    def rest(self) -> bytes:
        """What to send at the end. Raises Fault when the server stopped before its answer did."""
        if not self._complete:
            raise Fault(502, INCOMPLETE)
        return self._events.rest()

    def _renamed(self, data: bytes) -> bytes:
        """`data` with the client's name of the model. In the text of the model the same bytes
        cannot be: its quotes are escaped."""
        if not self._theirs:
            if (found := MODEL_FIELD.search(data)) is None:
                return data
            self._theirs = found[0]
        return data.replace(self._theirs, self._model)

    def _told(self, event: bytes) -> bytes:
        if event.startswith(_ERROR):
            fault = fault_of(Dialect.OPENAI, 500, event.removeprefix(b"data: "))
            return errors.event(Dialect.OPENAI, fault, self._request_id)
        return event
