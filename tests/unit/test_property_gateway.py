"""Whatever a client sends: an answer of its own making is never the endpoint's failure."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from zluda_stack.gateway.errors import Fault
from zluda_stack.gateway.infill import infill_request
from zluda_stack.gateway.messages import MessagesRequest
from zluda_stack.gateway.openai_request import OpenAIRequest
from zluda_stack.gateway.responses import limit_of
from zluda_stack.gateway.ways import way_of

KINDS = [
    *("text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking"),
    *("tool_reference", "tool_addition", "tool_removal", "search_result", "server_tool_use"),
    *("web_search_tool_result", "other"),
]
FIELDS = ("text", "source", "content", "tool", "tool_name", "is_error", "input", "id", "thinking")

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "name", "text", "content"]), inner, max_size=3)
    ),
    max_leaves=4,
)
blocks = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(KINDS)},
        optional=dict.fromkeys(FIELDS, anything),
    ),
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("tool_result"), "content": st.lists(inner, max_size=2) | anything}
    ),
    max_leaves=3,
)
messages = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system"]),
        "content": st.text(max_size=4) | st.lists(blocks, max_size=3),
    }
)
tools = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["a", "b"]) | anything,
        "type": st.sampled_from(["custom", "tool_search_tool_x", "web_search_1"]) | anything,
        "input_schema": anything,
        "defer_loading": st.booleans(),
        "function": anything,
    },
)
requests = st.fixed_dictionaries(
    {"messages": st.lists(messages, min_size=1, max_size=3)},
    optional={
        "model": st.text(max_size=4),
        "stream": st.booleans(),
        "system": st.text(max_size=4) | st.lists(blocks, max_size=2),
        "tools": st.lists(tools, max_size=3),
        "tool_choice": st.fixed_dictionaries(
            {"type": st.sampled_from(["auto", "any", "tool", "none"])},
            optional={"name": anything, "disable_parallel_tool_use": anything},
        ),
        "thinking": st.dictionaries(st.just("type"), anything),
        "output_config": st.dictionaries(st.just("format"), anything),
        "chat_template_kwargs": anything,
        "stop_sequences": st.lists(st.text(max_size=2), max_size=2),
        "max_tokens": st.integers(),
        "max_output_tokens": anything,
        "prompt": anything,
        "suffix": anything,
    },
)


@settings(max_examples=500, deadline=None)
@given(body=requests, sees_images=st.booleans(), openai_only=st.booleans())
def test_a_message_is_sent_on_as_json_or_refused_as_a_mistake(
    body: dict[str, Any], sees_images: bool, openai_only: bool
) -> None:
    try:
        request = MessagesRequest(json.dumps(body).encode())
        edited = request.edited(sees_images=sees_images)
        way = way_of(request, edited, "req_1", openai_only=openai_only)
    except Fault as fault:
        assert fault.status == 400
    else:
        assert isinstance(json.loads(way.content), dict)


@settings(max_examples=300, deadline=None)
@given(body=requests)
def test_a_request_of_openais_api_is_sent_on_as_json_or_refused_as_a_mistake(
    body: dict[str, Any],
) -> None:
    content = json.dumps(body).encode()
    for read in (lambda one: OpenAIRequest(one).content, infill_request, limit_of):
        try:
            read(content)
        except Fault as fault:
            assert fault.status == 400


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=60))
def test_bytes_that_are_no_request_are_refused_as_a_mistake(content: bytes) -> None:
    for read in (MessagesRequest, OpenAIRequest):
        try:
            read(content)
        except Fault as fault:
            assert fault.status == 400
