"""Who may use the endpoint: whoever shows the key, as a Bearer token or as x-api-key."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

RawHeaders = Iterable[tuple[bytes, bytes]]

CREDENTIALS = frozenset({b"authorization", b"x-api-key"})


_HEX_DIGEST = re.compile(r"[0-9a-f]{64}")


class Keys:
    """The accepted keys, of which only the SHA-256 digests are kept.

    A plain digest is enough for keys that are 256 random bits: there is nothing to guess.
    """

    def __init__(self, digests: Iterable[bytes]) -> None:
        self._digests = tuple(digests)

    @classmethod
    def from_file(cls, path: Path) -> Keys:
        """The keys in `path`, one a line. Raises OSError, and ValueError when there is none."""
        return cls(hashlib.sha256(line.encode()).digest() for line in _lines(path))

    @classmethod
    def from_hashes(cls, path: Path) -> Keys:
        """The keys whose SHA-256 digests are in `path`, one a line in lower-case hexadecimal.

        Raises OSError, and ValueError when there is none or a line is no digest.
        """
        lines = _lines(path)
        if not all(_HEX_DIGEST.fullmatch(line) for line in lines):
            raise ValueError(f"{path} holds a line that is no SHA-256 digest")
        return cls(bytes.fromhex(line) for line in lines)

    def accept(self, headers: RawHeaders) -> bool:
        """True when any credential among `headers` (lower-case names) is an accepted key.

        Clients send both headers when both of their variables are set, and one of the two is
        often left over from another server: either right one suffices. The comparison takes
        the same time wherever the first difference is.
        """
        shown = (hashlib.sha256(credential).digest() for credential in _shown(headers))
        return any(
            hmac.compare_digest(one, accepted) for one in shown for accepted in self._digests
        )


def _lines(path: Path) -> list[str]:
    lines = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{path} holds no key")
    return lines


def _shown(headers: RawHeaders) -> Iterator[bytes]:
    for name, value in headers:
        if name == b"x-api-key":
            yield value.strip()
        elif name == b"authorization":
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer":
                yield token.strip()
