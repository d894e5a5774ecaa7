"""Tokens are read from what servers say at the end, in every dialect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from zluda_stack.gateway.usage import Meter, Usage, Work

# As llama.cpp's server of xllamacpp 2026.10.11549 wrote them on 2026-11-30, shortened.
TIMINGS = b'"timings":{"cache_n":24,"prompt_n":7,"prompt_ms":3086.884,"predicted_n":3,"x_n":9}'
SHAPES = {
    "chat": b'{"choices":[],"usage":{"completion_tokens":3,"prompt_tokens":31,"total_tokens":34,'
    b'"prompt_tokens_details":{"cached_tokens":24}},"id":"1",' + TIMINGS + b"}",
    "chat stream": b'data: {"choices":[{"delta":{}}],' + TIMINGS + b"}\n\ndata: [DONE]\n\n",
    "messages": b'{"content":[],"usage":{"cache_read_input_tokens":24,"input_tokens":7,'
    b'"output_tokens":3}}',
    "messages stream": b'event: message_start\ndata: {"message":{"usage":'
    b'{"cache_read_input_tokens":24,"input_tokens":7,"output_tokens":0}}}\n\n'
    + b'event: content_block_delta\ndata: {"delta":{"text":"x"}}\n\n' * 500
    + b'event: message_delta\ndata: {"usage":{"output_tokens":3}}\n\n',
    "responses": b'{"usage":{"input_tokens":31,"output_tokens":3,"total_tokens":34,'
    b'"input_tokens_details":{"cached_tokens":24}}}',
    "another server": b'{"usage":{"prompt_tokens":31,"completion_tokens":3,'
    b'"prompt_tokens_details":{"cached_tokens":24}}}',
    "indented": b'{"usage": {"prompt_tokens" : 31, "cached_tokens": 24,\n "completion_tokens": 3}}',
}


async def _pieces(data: bytes, size: int, until: int | None = None) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        if until is not None and at >= until:
            raise ConnectionError
        yield data[at : at + size]


def metered(data: bytes, size: int, until: int | None = None) -> Meter:
    """A meter that saw `data` in pieces, to the end or until the stream broke off."""

    async def go() -> Meter:
        meter = Meter()
        try:
            async for _ in meter.over(_pieces(data, size, until)):
                pass
        except ConnectionError:
            assert until is not None
        return meter

    return asyncio.run(go())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [7, 1000, 10**6])
def test_tokens_are_found_in_every_dialect_however_the_answer_is_cut(shape: str, size: int) -> None:
    assert metered(SHAPES[shape], size).usage() == Usage(7, 24, 3)


@pytest.mark.parametrize("data", [b"", b"{}", b"data: [DONE]\n\n", b"\xff\xfe" * 5000])
def test_an_answer_that_says_nothing_of_tokens_counts_as_none(data: bytes) -> None:
    assert metered(data, 1000).usage() == Usage()


def test_a_text_of_the_model_counts_as_no_tokens() -> None:
    text = 'the usage was {"completion_tokens":999,"prompt_tokens":999}'
    data = json.dumps({"usage": {"prompt_tokens": 4, "completion_tokens": 5}, "content": text})
    assert metered(data.encode(), 1000).usage() == Usage(4, 0, 5)


def test_a_stream_that_was_left_counts_its_events() -> None:
    events = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
    assert metered(events * 20, len(events), until=len(events) * 12).usage() == Usage(0, 0, 12)


def test_the_first_event_is_the_first_token_and_a_comment_is_none() -> None:
    assert metered(b":\n\n", 10).first_at is None
    assert metered(b"{}", 10).first_at is None
    assert metered(b":\n\ndata: 1\n\n", 10).first_at is not None


def test_several_answers_to_one_request_add_up() -> None:
    work = Work()
    work.add(Usage(1, 2, 3))
    work.add(Usage(10, 20, 30))
    assert work.usage == Usage(11, 22, 33)
    assert work.usage.spent == 44
