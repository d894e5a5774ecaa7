"""Who may use the endpoint: whoever shows a key, as a Bearer token or as x-api-key."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from zluda_stack import keyring
from zluda_stack.gateway.errors import Fault
from zluda_stack.keyring import Key

RawHeaders = Iterable[tuple[bytes, bytes]]
Clock = Callable[[], datetime]

CREDENTIALS = frozenset({b"authorization", b"x-api-key"})

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeyFile:
    """A file with keys, and how it is read."""

    path: Path
    parse: Callable[[str], tuple[Key, ...]]

    @classmethod
    def of_keys(cls, path: Path) -> KeyFile:
        """A file with the keys themselves, one a line."""
        return cls(path, _plain)

    @classmethod
    def of_digests(cls, path: Path) -> KeyFile:
        """A file with their digests, as zluda_stack.keyring writes them."""
        return cls(path, keyring.parse)

    def read(self) -> tuple[Key, ...]:
        """Its keys. Raises OSError, and ValueError for a file of another kind."""
        try:
            return self.parse(self.path.read_text())
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from error

    def version(self) -> tuple[int, ...]:
        """Another value after every change of the file; empty when it is not there."""
        try:
            status = self.path.stat()
        except OSError:
            return ()
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class Keys:
    """The accepted keys. A change of their files counts from the next request on."""

    def __init__(self, *files: KeyFile, clock: Clock | None = None) -> None:
        """Read the keys. Raises OSError, and ValueError when a file is wrong or there is none."""
        self._files = files
        self._clock = clock or (lambda: datetime.now(timezone.utc))
        self._versions = self._look()
        self._keys = _read(files)

    def require(self, headers: RawHeaders) -> Key:
        """The key among `headers` (lower-case names). Raises Fault 401 without a valid one.

        Clients send both headers when both of their variables are set, and one of the two is
        often left over from another server: either right one suffices.
        """
        self._refresh()
        expired = None
        for key in self._shown(headers):
            if key.expires is None or self._clock() < key.expires:
                return key
            expired = key
        if expired is not None:
            raise Fault(401, f"the API key {expired.name} expired on {expired.expires:%Y-%m-%d}")
        raise Fault(401, "missing or wrong API key; `zluda-stack connect env` shows the stack's")

    def _shown(self, headers: RawHeaders) -> list[Key]:
        """The known keys among `headers`, after as many steps whichever and wherever they are."""
        digests = [hashlib.sha256(credential).digest() for credential in _credentials(headers)]
        return [
            key
            for digest in digests
            for key in self._keys
            if hmac.compare_digest(digest, key.digest)
        ]

    def _refresh(self) -> None:
        versions = self._look()
        if versions == self._versions:
            return
        self._versions = versions
        try:
            self._keys = _read(self._files)
        except (OSError, ValueError) as error:
            # Half a change must not lock everyone out; the next one is read again.
            _log.error("the keys stay as they were: %s", error)
        else:
            _log.info("read the keys again: %d", len(self._keys))

    def _look(self) -> tuple[tuple[int, ...], ...]:
        return tuple(file.version() for file in self._files)


def _read(files: Sequence[KeyFile]) -> tuple[Key, ...]:
    keys = tuple(key for file in files for key in file.read())
    if not keys:
        raise ValueError(f"{' and '.join(str(file.path) for file in files)} holds no key")
    return keys


def _plain(text: str) -> tuple[Key, ...]:
    lines = (line.strip() for line in text.splitlines())
    return tuple(Key(digest=hashlib.sha256(line.encode()).digest()) for line in lines if line)


def _credentials(headers: RawHeaders) -> Iterator[bytes]:
    for name, value in headers:
        if name == b"x-api-key":
            yield value.strip()
        elif name == b"authorization":
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer":
                yield token.strip()
