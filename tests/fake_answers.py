"""What llama.cpp's server says when all is well, path by path: ANSWERS whole, STREAMS as chunks."""

from __future__ import annotations

import json
from typing import Any

from tests.fake_upstream import message_events, sse

Json = dict[str, Any]

_CHAT = {"id": "chatcmpl-1", "created": 1_790_000_000, "model": "default"}
_CHOSEN = {"index": 0, "finish_reason": "stop"}
_TIMINGS = {"prompt_n": 3, "cache_n": 2, "predicted_n": 2}
_USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
_CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
_MODEL = {
    "id": "default",
    "object": "model",
    "created": 1_790_000_000,
    "owned_by": "llamacpp",
    "aliases": ["default", "other"],
    "meta": {"n_ctx": 4096},
    "architecture": {"input_modalities": ["text", "image"]},
}
_SAID = {"role": "assistant", "content": "Well.", "tool_calls": [_CALL]}
_RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": "default",
    "output": [{"type": "message", "id": "msg_1", "status": "completed"}],
    "usage": {"input_tokens": 5, "output_tokens": 2},
}
_COUNT = {"input_tokens": 5}

ANSWERS: dict[str, Json] = {
    "/v1/models": {"object": "list", "data": [_MODEL]},
    "/v1/messages": {
        "id": "chatcmpl-1",
        "type": "message",
        "role": "assistant",
        "model": "default",
        "content": [{"type": "text", "text": "Well."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 2},
    },
    "/v1/messages/count_tokens": _COUNT,
    "/v1/chat/completions": {
        **_CHAT,
        "object": "chat.completion",
        "choices": [{**_CHOSEN, "finish_reason": "tool_calls", "message": _SAID}],
        "usage": _USAGE,
        "timings": _TIMINGS,
    },
    "/v1/chat/completions/input_tokens": _COUNT,
    "/v1/completions": {
        **_CHAT,
        "object": "text_completion",
        "choices": [{**_CHOSEN, "text": "Well."}],
        "usage": _USAGE,
    },
    "/v1/responses": _RESPONSE,
    "/v1/responses/input_tokens": _COUNT,
    "/v1/embeddings": {
        "object": "list",
        "model": "default",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.5]}],
        "usage": {"prompt_tokens": 5},
    },
    "/infill": {"content": "Well.", "stop": True, "stop_type": "eos", "tokens_predicted": 2},
    "/tokenize": {"count": 5},  # vLLM's
}


def chat_chunk(delta: Json, reason: str | None = None, **more: object) -> bytes:
    """An event of /v1/chat/completions."""
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return _data({**_CHAT, "object": "chat.completion.chunk", "choices": [choice], **more})


def _text_chunk(text: str, reason: str | None = None) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": reason}
    return _data({**_CHAT, "object": "text_completion", "choices": [choice]})


def _data(told: Json) -> bytes:
    return b"data: %s\n\n" % json.dumps(told).encode()


_DONE = b"data: [DONE]\n\n"
_BEGUN = {**_CALL, "index": 0, "function": {"name": "look", "arguments": '{"at'}}

STREAMS: dict[str, list[bytes]] = {
    "/v1/messages": message_events("We", "ll", "."),
    "/v1/chat/completions": [
        chat_chunk({"role": "assistant", "content": None}),
        chat_chunk({"content": "Well."}),
        chat_chunk({"tool_calls": [_BEGUN]}),
        chat_chunk({"tool_calls": [{"index": 0, "function": {"arguments": '":"it"}'}}]}),
        chat_chunk({}, "tool_calls", usage=_USAGE, timings=_TIMINGS),
        _DONE,
    ],
    "/v1/completions": [_text_chunk("We"), _text_chunk("ll", "stop"), _DONE],
    "/v1/responses": [
        sse(type="response.created", response={**_RESPONSE, "status": "in_progress"}),
        sse(type="response.output_text.delta", item_id="msg_1", delta="Well."),
        sse(type="response.completed", response=_RESPONSE),
    ],
    "/infill": [
        _data({"content": "We", "stop": False}),
        _data({"content": "ll", "stop": True, "stop_type": "limit"}),
    ],
}
