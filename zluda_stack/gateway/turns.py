"""A conversation as chat templates insist on it: the user and the assistant in turns.

Many templates end in an exception at a system message in the middle, or at two turns of the same
side (Qwen3.5, Ministral 3, Gemma); Claude Code sends the first, and Anthropic's API allows both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from zluda_stack.gateway.blocks import Block, text, words_of

Message = dict[str, Any]


def leading_system(messages: list[Message]) -> int:
    """How many messages at the beginning are the system's."""
    return next((at for at, one in enumerate(messages) if one["role"] != "system"), len(messages))


def in_turns(messages: Iterable[Message]) -> list[Message]:
    """`messages` with system messages folded into the user's text, and each side's in one turn.

    How a message comes out does not depend on later ones, so that the model server finds its
    prefix of the conversation again in the next request. The results of tools come before
    other content of their turn and apart from it: llama.cpp's server would put them behind it,
    away from the calls that they answer.
    """
    return list(_tool_results_apart(_merged(map(_of_user_or_assistant, messages))))


def _of_user_or_assistant(message: Message) -> Message:
    if message["role"] != "system":
        return message
    reminder = f"<system-reminder>\n{words_of(message['content'])}\n</system-reminder>"
    return {"role": "user", "content": [text(reminder)]}


def _merged(messages: Iterable[Message]) -> Iterator[Message]:
    for role, group in groupby(messages, key=lambda message: message["role"]):
        first, *others = group
        if others:
            content = [block for one in (first, *others) for block in as_blocks(one["content"])]
            yield {"role": role, "content": content}
        else:
            yield first


def _tool_results_apart(messages: Iterable[Message]) -> Iterator[Message]:
    for message in messages:
        results, others = _split(message["content"])
        if results and others:
            yield {**message, "content": results}
            yield {**message, "content": others}
        else:
            yield message


def _split(content: str | list[Block]) -> tuple[list[Block], list[Block]]:
    blocks = as_blocks(content)
    results = [block for block in blocks if block["type"] == "tool_result"]
    return results, [block for block in blocks if block["type"] != "tool_result"]


def as_blocks(content: str | list[Block]) -> list[Block]:
    """`content` as a list of blocks."""
    return [text(content)] if isinstance(content, str) else content
