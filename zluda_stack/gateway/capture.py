"""Keeps what clients send and get, for the one who looks for a fault. Off unless asked for."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

_log = logging.getLogger(__name__)


class Capture:
    """A folder that only its owner can read, with two files for each request."""

    def __init__(self, folder: Path) -> None:
        """Make the folder. Raises OSError."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._folder = folder
        _log.warning(
            "EVERY PROMPT AND EVERY ANSWER IS WRITTEN TO %s, and nothing is removed there: "
            "start without --capture to end this",
            folder,
        )

    def recording(self, request_id: str) -> Recording:
        """Where one request is kept."""
        return Recording(self._folder / request_id)


@dataclass(frozen=True)
class Recording:
    """The bodies of one request, in PATH.request and PATH.answer.

    Headers, and so the key, are not kept. A disk that is full loses the recording and no request.
    """

    path: Path

    def request(self, content: bytes) -> None:
        """Keep what the client has sent."""
        self._append(".request", content)

    def answer(self, chunk: bytes) -> None:
        """Keep the next bytes that the client gets."""
        self._append(".answer", chunk)

    def _append(self, suffix: str, content: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path.with_name(self.path.name + suffix), flags, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        except OSError as error:
            _log.error("cannot keep %s%s: %s", self.path.name, suffix, error.strerror)
