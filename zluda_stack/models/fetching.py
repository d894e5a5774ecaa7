"""How models are fetched: how fast, how patiently, and from where."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from zluda_stack.models.throttle import Throttle


def _sleep(seconds: float) -> None:
    time.sleep(seconds)  # looked up now, so that a test can replace it


class Patience(Struct, frozen=True, kw_only=True):
    """How long a download waits.

    `stall_seconds` is for an answer and for the next byte; a person is told of it every
    `told_seconds`. `tries` are those in a row that bring
    no new byte; with the backoff, the pauses between them are 0, 2, 4, 8, 16 and 30 seconds. A
    server that was never reached gets `first_tries`: there is probably no network.
    """

    stall_seconds: float = 60
    told_seconds: float = 15
    tries: int = 6
    first_tries: int = 3
    backoff_seconds: float = 1.0
    wait: Callable[[float], None] = _sleep


class Fetching(Struct, frozen=True, kw_only=True):
    """How models are fetched.

    `limit` bounds the speed of all downloads together; `peer` is the folder or URL of another
    store that is asked in place of a model's own source; `update` takes what the source has now
    where the catalogue does not say which, also when the store has an older one. `environ` names
    the hub and the user's token as huggingface_hub reads them.
    """

    limit: Throttle = msgspec.field(default_factory=Throttle)
    patience: Patience = Patience()
    peer: str | None = None
    update: bool = False
    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: os.environ)
