"""Server-sent events, only as far as a pass-through must know them."""

from __future__ import annotations

_SEPARATORS = (b"\n\n", b"\r\n\r\n")
_OVERLAP = max(map(len, _SEPARATORS)) - 1


class WholeEvents:
    """Cuts a byte stream at the ends of its events, without looking into them.

    What was passed on always ends with a whole event, so that an event of our own can follow
    when the server breaks off in the middle of one. An event of many chunks is searched once.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of the event that is not complete yet
        self._tail = b""  # the last bytes of these

    def feed(self, chunk: bytes) -> bytes:
        """The bytes up to the end of the last event that is complete with `chunk`."""
        if not self._parts and chunk.endswith(b"\n\n"):
            return chunk
        seen = self._tail + chunk
        end = _last_end(seen) - len(self._tail)  # in the chunk
        if end <= 0:
            self._keep([*self._parts, chunk], seen)
            return b""
        whole = b"".join([*self._parts, chunk[:end]])
        self._keep([chunk[end:]], chunk[end:])
        return whole

    def rest(self) -> bytes:
        """What is left when the stream has ended properly."""
        rest = b"".join(self._parts)
        self._keep([], b"")
        return rest

    def _keep(self, parts: list[bytes], seen: bytes) -> None:
        self._parts = [part for part in parts if part]
        self._tail = seen[-_OVERLAP:]


def _last_end(data: bytes) -> int:
    """Where the last whole event in `data` ends; 0 when there is none."""
    return max(
        (at + len(one) for one in _SEPARATORS if (at := data.rfind(one)) >= 0),
        default=0,
    )


def events_of(data: bytes) -> list[bytes]:
    """The whole events in `data`, each with its end; they must end as llama.cpp's do."""
    return [event + b"\n\n" for event in data.split(b"\n\n") if event]
