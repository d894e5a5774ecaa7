"""Who may use the endpoint: whoever shows the key, as a Bearer token or as x-api-key."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator
from pathlib import Path

RawHeaders = Iterable[tuple[bytes, bytes]]

CREDENTIALS = frozenset({b"authorization", b"x-api-key"})


class Keys:
    """The accepted keys."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = tuple(key.encode() for key in keys)

    @classmethod
    def from_file(cls, path: Path) -> Keys:
        """The keys in `path`, one a line. Raises OSError, and ValueError when there is none."""
        keys = [line.strip() for line in path.read_text().splitlines() if line.strip()]
        if not keys:
            raise ValueError(f"{path} holds no key")
        return cls(keys)

    def accept(self, headers: RawHeaders) -> bool:
        """True when any credential among `headers` (lower-case names) is an accepted key.

        Clients send both headers when both of their variables are set, and one of the two is
        often left over from another server: either right one suffices. The comparison takes
        the same time wherever the first difference is.
        """
        return any(
            hmac.compare_digest(shown, key) for shown in _shown(headers) for key in self._keys
        )


def _shown(headers: RawHeaders) -> Iterator[bytes]:
    for name, value in headers:
        if name == b"x-api-key":
            yield value.strip()
        elif name == b"authorization":
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer":
                yield token.strip()
