"""Server-sent events, only as far as a pass-through must know them."""

from __future__ import annotations

_SEPARATORS = (b"\n\n", b"\r\n\r\n")


class WholeEvents:
    """Cuts a byte stream at the ends of its events, without looking into them.

    What was passed on always ends with a whole event, so that an event of our own can follow
    when the server breaks off in the middle of one.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """The bytes up to the end of the last event that is complete with `chunk`."""
        data = self._rest + chunk
        end = max(
            (
                at + len(separator)
                for separator in _SEPARATORS
                if (at := data.rfind(separator)) >= 0
            ),
            default=0,
        )
        self._rest = data[end:]
        return data[:end]

    def rest(self) -> bytes:
        """What is left when the stream has ended properly."""
        rest, self._rest = self._rest, b""
        return rest
