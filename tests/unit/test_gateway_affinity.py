"""Which requests are turns of one conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zluda_stack.gateway.affinity import Homes, Opening, opening

SESSION = [(b"x-claude-code-session-id", b"5e55-10")]


def of(body: object, headers: list[tuple[bytes, bytes]] | None = None) -> Opening:
    return opening(headers or [], json.dumps(body).encode())


def turns(*texts: str) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]


BODIES: dict[str, Any] = {
    "messages": lambda system, *texts: {"model": "m", "system": system, "messages": turns(*texts)},
    "chat": lambda system, *texts: {
        "model": "m",
        "messages": [{"role": "system", "content": system}, *turns(*texts)],
    },
    "responses": lambda system, *texts: {
        "model": "m",
        "instructions": system,
        "input": [
            {
                "type": "message",
                **turn,
                "content": [{"type": "input_text", "text": turn["content"]}],
            }
            for turn in turns(*texts)
        ],
    },
}


@pytest.mark.parametrize("dialect", BODIES)
def test_later_turns_are_of_the_same_conversation_and_others_are_not(dialect: str) -> None:
    body = BODIES[dialect]
    first = of(body("be brief", "hello"))
    assert first.model == "m"
    assert first.conversation is not None
    assert of(body("be brief", "hello", "hi", "and?")) == first
    assert of(body("be brief", "good day")).conversation != first.conversation
    assert of(body("be long", "hello")).conversation != first.conversation


def test_marks_and_pictures_beside_the_text_do_not_count() -> None:
    block = {"type": "text", "text": "hello"}
    marked = {**block, "cache_control": {"type": "ephemeral"}}
    picture = {"type": "image", "source": {"type": "base64", "data": "aGk="}}
    plain = of({"messages": [{"role": "user", "content": [block]}]})
    assert plain.conversation is not None
    assert of({"messages": [{"role": "user", "content": [marked]}]}) == plain
    assert of({"messages": [{"role": "user", "content": "hello"}]}) == plain
    assert of({"messages": [{"role": "user", "content": [block, picture]}]}).conversation


def test_a_session_that_the_client_names_is_the_conversation() -> None:
    one = of(BODIES["messages"]("billing 1", "hello"), SESSION)
    assert of(BODIES["messages"]("billing 2", "a title, please"), SESSION) == one
    assert of(BODIES["messages"]("billing 1", "hello")).conversation != one.conversation
    assert opening(SESSION, b"no json") == Opening(conversation=one.conversation)


@pytest.mark.parametrize(
    "body",
    [{}, [], "text", {"model": "m", "messages": []}, {"input": [1]}, {"messages": [[]]}],
)
def test_what_has_no_beginning_has_no_conversation(body: object) -> None:
    assert of(body).conversation is None


def test_the_model_is_known_even_of_a_prompt_in_an_unknown_shape() -> None:
    assert of({"model": "m", "prompt": [1, 2, 3]}) == Opening(model="m")


@given(st.binary())
def test_any_bytes_are_read_or_passed_over(content: bytes) -> None:
    opening([], content)
    assert opening(SESSION, content).conversation is not None


def test_what_rested_longest_is_forgotten_first() -> None:
    homes: Homes[int] = Homes(kept=2)
    homes.settle(b"a", 1)
    homes.settle(b"b", 2)
    assert homes.of(b"a") == 1
    homes.settle(b"c", 3)
    assert [homes.of(mark) for mark in (b"a", b"b", b"c", None)] == [1, None, 3, None]
