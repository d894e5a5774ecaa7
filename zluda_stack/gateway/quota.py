"""What a key may use: requests in any 60 seconds, and tokens in a day.

Counted in memory: a restart of the endpoint begins anew.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from zluda_stack.gateway.errors import Fault
from zluda_stack.keyring import Key

_MINUTE = 60.0
_DAY = 86_400


@dataclass
class _Used:
    """What one key has used: when its last requests came, and the tokens of a day since 1970."""

    requests: deque[float] = field(default_factory=deque)
    day: int = 0
    tokens: int = 0


class Quotas:
    """Counts what each key uses and refuses what is above its limits."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._used: dict[str, _Used] = {}

    def count_request(self, key: Key) -> None:
        """Count one request. Raises Fault 429, and counts nothing, when `key` has used all."""
        now, used = self._clock(), self._of(key)
        if key.tokens_per_day is not None and used.tokens >= key.tokens_per_day:
            limit = f"its {key.tokens_per_day} tokens of today"
            raise _refusal(key, limit, (used.day + 1) * _DAY - now)
        if key.per_minute is None:
            return
        while used.requests and used.requests[0] <= now - _MINUTE:
            used.requests.popleft()
        if len(used.requests) >= key.per_minute:
            limit = f"its {key.per_minute} requests a minute"
            raise _refusal(key, limit, used.requests[-key.per_minute] + _MINUTE - now)
        used.requests.append(now)

    def count_tokens(self, key: Key, tokens: int) -> None:
        """Count what an answer has cost, prompt and answer together."""
        if key.tokens_per_day is not None:
            self._of(key).tokens += tokens

    def _of(self, key: Key) -> _Used:
        used = self._used.setdefault(key.name, _Used())
        today = int(self._clock() // _DAY)
        if used.day != today:
            used.day, used.tokens = today, 0
        return used


def _refusal(key: Key, limit: str, seconds: float) -> Fault:
    return Fault(
        429,
        f"the API key {key.name} has used {limit}",
        retry_after=max(1, math.ceil(seconds)),
    )
