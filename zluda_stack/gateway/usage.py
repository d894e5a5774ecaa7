"""What a request costs: tokens, and the time until the first of them.

Read from the first and the last bytes of an answer once it is over, so that nothing is parsed
while it runs.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from msgspec import Struct

_EVENT = re.compile(rb"(?:\A|\n)(?:data|event):")  # a comment is no answer yet
# More than the first and the last events of any dialect take, tool calls apart.
_KEPT = 4096
# A text in an answer cannot look like this: its quotation marks have backslashes.
_COUNT = re.compile(
    rb'"(prompt_tokens|input_tokens|completion_tokens|output_tokens|cached_tokens'
    rb'|cache_read_input_tokens|cache_n|prompt_n|predicted_n)"\s*:\s*(\d{1,12})\b'
)


class Usage(Struct, frozen=True):
    """Tokens of the prompt that were computed and that came from the cache, and of the answer."""

    computed: int = 0
    cached: int = 0
    generated: int = 0

    @property
    def spent(self) -> int:
        """Those that cost the model server's time."""
        return self.computed + self.generated


class Meter:
    """Sees the bytes of one answer pass by. `first_at` is when its first event came."""

    def __init__(self) -> None:
        self.first_at: float | None = None
        self._head = b""
        self._tail = b""
        self._events = 0
        self._whole = False

    def over(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same chunks, each of them seen. To be called once."""
        self._chunks = chunks
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._whole = True
            raise
        self._see(chunk)
        return chunk

    def _see(self, chunk: bytes) -> None:
        if self.first_at is None and _EVENT.search(chunk):
            self.first_at = time.monotonic()
        if len(self._head) < _KEPT:
            self._head = (self._head + chunk)[:_KEPT]
        self._tail = (self._tail + chunk[-_KEPT:])[-_KEPT:]
        self._events += chunk.count(b"\n\n")

    def usage(self) -> Usage:
        """What the server said that it has cost.

        Of a stream that was left before its end it has not said the number of tokens that it
        made; there the events count, of which each has about one.
        """
        counts = {name: int(number) for name, number in _COUNT.findall(self._head + self._tail)}
        usage = _of_counts(counts)
        if self._whole:
            return usage
        return Usage(usage.computed, usage.cached, max(usage.generated, self._events))


@dataclass
class Work:
    """What a request has cost so far; times are in seconds."""

    server: str | None = None
    waited: float = 0.0
    first_token: float | None = None
    usage: Usage = field(default_factory=Usage)

    def add(self, usage: Usage) -> None:
        """Count the tokens of one answer."""
        mine = self.usage
        self.usage = Usage(
            mine.computed + usage.computed,
            mine.cached + usage.cached,
            mine.generated + usage.generated,
        )


def _of_counts(counts: dict[bytes, int]) -> Usage:
    def of(name: bytes) -> int:
        return counts.get(name, 0)

    if b"prompt_n" in counts:  # llama.cpp's timings, in all answers of OpenAI's dialect
        return Usage(of(b"prompt_n"), of(b"cache_n"), of(b"predicted_n"))
    if b"cache_read_input_tokens" in counts:  # Anthropic counts them beside the others
        return Usage(of(b"input_tokens"), of(b"cache_read_input_tokens"), of(b"output_tokens"))
    cached = of(b"cached_tokens")
    prompt = counts.get(b"prompt_tokens", of(b"input_tokens"))
    generated = counts.get(b"completion_tokens", of(b"output_tokens"))
    return Usage(max(0, prompt - cached), cached, generated)
