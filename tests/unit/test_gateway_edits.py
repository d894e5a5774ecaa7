"""What the endpoint makes of a request of Anthropic's API before llama.cpp's server gets it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from zluda_stack.gateway.blocks import TOOL_FAILED
from zluda_stack.gateway.errors import Fault
from zluda_stack.gateway.messages import MessagesRequest

BILLING = "x-anthropic-billing-header: cc_version=2.1.332.1c9; cc_entrypoint=cli; cch=a5145;"
USER = {"role": "user", "content": "hi"}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def turn(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def edited(*messages: dict[str, Any], sees_images: bool = True, **more: Any) -> dict[str, Any]:
    body = {"model": "m", "messages": list(messages), **more}
    return MessagesRequest(json.dumps(body).encode()).edited(sees_images=sees_images)


def reminder(words: str) -> dict[str, Any]:
    return text(f"<system-reminder>\n{words}\n</system-reminder>")


def test_a_request_that_needs_no_edit_keeps_its_bytes() -> None:
    content = b'{ "model":"m", "messages" : [{"role":"user","content":"\\u00e4"}], "x": 1e2 }'
    request = MessagesRequest(content)
    assert request.encoded(request.edited(sees_images=False)) is content


def test_unknown_fields_are_kept() -> None:
    assert edited(USER, turn("system", text("s")), cache_prompt=True)["cache_prompt"] is True


@pytest.mark.parametrize("content", ["s", [text("s")]])
def test_a_system_message_in_mid_conversation_becomes_the_users_text(content: Any) -> None:
    system = {"role": "system", "content": content}
    answer = {"role": "assistant", "content": "a"}
    told = edited(USER, system, answer, USER, system, answer, system)["messages"]
    assert told == [
        turn("user", text("hi"), reminder("s")),
        answer,
        turn("user", text("hi"), reminder("s")),
        answer,
        turn("user", reminder("s")),
    ]


def test_a_leading_system_message_joins_the_system_prompt() -> None:
    told = edited({"role": "system", "content": "b"}, USER, system="a")
    assert told["system"] == [text("a"), text("b")]
    assert told["messages"] == [USER]


def test_what_was_told_of_a_turn_does_not_change_with_later_turns() -> None:
    first = [USER, turn("system", text("s"))]
    later = [*first, {"role": "assistant", "content": "a"}, USER, turn("system", text("t")), USER]
    assert edited(*later)["messages"][:1] == edited(*first)["messages"]


def test_two_turns_of_one_side_become_one() -> None:
    answer = {"role": "assistant", "content": "a"}
    told = edited(USER, turn("user", text("you")), answer, answer)["messages"]
    assert told == [
        turn("user", text("hi"), text("you")),
        turn("assistant", text("a"), text("a")),
    ]


def test_results_of_tools_come_before_other_content_of_their_turn_and_apart() -> None:
    result = {"type": "tool_result", "tool_use_id": "1", "content": "r"}
    told = edited(turn("user", text("t"), result, text("u")))["messages"]
    assert told == [turn("user", result), turn("user", text("t"), text("u"))]


@pytest.mark.parametrize(
    ("system", "told"),
    [
        ([text(BILLING), text("You")], [text("You")]),
        ([text(BILLING.rpartition(" cch")[0]), text("You")], [text("You")]),
        (BILLING + "You", "You"),
        ("You", "You"),
        ([text(BILLING)], None),
    ],
)
def test_the_billing_text_is_left_out(system: Any, told: Any) -> None:
    assert edited(USER, system=system).get("system") == told


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object"}, **more}


LATER = tool("later", defer_loading=True)
NEVER = tool("never", defer_loading=True)
REFERENCE = {"type": "tool_reference", "tool_name": "later"}
FOUND = {"type": "tool_result", "tool_use_id": "1", "content": [REFERENCE]}


def names(*messages: dict[str, Any], tools: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in edited(*messages, tools=tools)["tools"]]


def test_a_deferred_tool_is_offered_once_it_is_referred_to() -> None:
    tools = [LATER, tool("now"), NEVER]
    assert names(USER, tools=tools) == ["now"]
    assert names(USER, turn("user", FOUND), tools=tools) == ["now", "later"]
    told = edited(turn("user", FOUND), tools=tools)["messages"][0]["content"][0]["content"]
    assert told == [text("The tool later can be called now.")]


def test_deferred_tools_are_all_offered_when_nobody_could_ever_load_them() -> None:
    search = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
    assert names(USER, tools=[search, tool("now"), LATER]) == ["now", "later"]
    assert names(USER, tools=[LATER]) == ["later"]


def test_tools_come_and_go_with_the_system_messages_that_say_so() -> None:
    added = {"type": "tool_definition", "definition": tool("new")}
    system = turn(
        "system",
        {"type": "tool_addition", "tool": added},
        {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "now"}},
    )
    assert names(USER, system, tools=[tool("now"), tool("other")]) == ["other", "new"]
    told = edited(USER, system, tools=[tool("now")])["messages"]
    assert "new can be called now" in told[0]["content"][1]["text"]


@pytest.mark.parametrize("kind", ["web_search_20250305", "code_execution_20250825"])
def test_a_tool_that_runs_on_other_servers_only_is_refused(kind: str) -> None:
    with pytest.raises(Fault, match=kind):
        edited(USER, tools=[{"type": kind, "name": "x"}])


@pytest.mark.parametrize(
    "block", [PNG, {"type": "tool_result", "tool_use_id": "1", "content": [PNG]}]
)
def test_an_image_that_the_model_cannot_see_is_refused_in_the_words_that_claude_code_knows(
    block: dict[str, Any],
) -> None:
    messages = (turn("user", block),)
    assert edited(*messages)["messages"] == list(messages)
    with pytest.raises(Fault, match="capability_rejected: image_block") as refused:
        edited(*messages, sees_images=False)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    "source",
    [
        {"type": "text", "media_type": "text/plain", "data": "words"},
        {"type": "content", "content": "words"},
        {"type": "content", "content": [text("words")]},
    ],
)
def test_a_document_of_text_becomes_text(source: dict[str, Any]) -> None:
    document = {"type": "document", "title": "A title", "source": source}
    told = edited(turn("user", document))["messages"][0]["content"]
    assert told == [text("A title"), text("words")]


@pytest.mark.parametrize("kind", ["base64", "url", "file"])
def test_a_pdf_is_refused(kind: str) -> None:
    document = {"type": "document", "source": {"type": kind, "data": "JVBERi0="}}
    with pytest.raises(Fault, match=r"PDF.*capability_rejected: document_block") as refused:
        edited(turn("user", document))
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("no", f"{TOOL_FAILED}\nno"),
        (None, f"{TOOL_FAILED}\n"),
        ([text("no")], [text(TOOL_FAILED), text("no")]),
    ],
)
def test_a_failed_tool_is_told_as_failed(content: Any, told: Any) -> None:
    result = {"type": "tool_result", "tool_use_id": "1", "is_error": True, "content": content}
    assert edited(turn("user", result))["messages"][0]["content"][0]["content"] == told


def test_thinking_of_earlier_turns_is_kept_and_what_only_others_can_read_is_not() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": ""}
    hidden = {"type": "redacted_thinking", "data": "x"}
    searched = {"type": "web_search_tool_result", "tool_use_id": "1", "content": []}
    told = edited(USER, turn("assistant", hidden, thought, searched, text("a")))["messages"]
    assert told[1]["content"] == [thought, text("a")]


def test_thinking_that_is_switched_off_is_off() -> None:
    told = edited(USER, thinking={"type": "disabled"})
    assert told["chat_template_kwargs"] == {"enable_thinking": False}
    assert "chat_template_kwargs" not in edited(USER, thinking={"type": "adaptive"})


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"", ""),
        (b"{", ""),
        (b"[]", ""),
        (b"\xff", ""),
        (b"[" * 10_000, ""),
        (b"{}", "messages"),
        (b'{"messages":[]}', "messages"),
        (b'{"messages":{}}', "messages"),
        (b'{"messages":[{"role":"robot","content":""}]}', "role"),
        (b'{"messages":[{"role":"user"}]}', "content"),
        (b'{"messages":[{"role":"user","content":[{"text":"a"}]}]}', "type"),
        (b'{"messages":[{"role":"user","content":[{"type":"text","text":5}]}]}', "text"),
        (b'{"messages":[{"role":"user","content":"a"}],"max_tokens":"5"}', "max_tokens"),
        (b'{"messages":[{"role":"user","content":"a"}],"tools":{}}', "tools"),
        (b'{"messages":[{"role":"user","content":"a"}],"model":5}', "model"),
    ],
)
def test_what_is_no_request_is_a_mistake_that_says_where(body: bytes, where: str) -> None:
    with pytest.raises(Fault) as refused:
        MessagesRequest(body)
    assert refused.value.status == 400
    assert where in refused.value.message


def test_an_unknown_kind_of_content_is_refused_by_name() -> None:
    with pytest.raises(Fault, match="hologram"):
        edited(turn("user", {"type": "hologram"}))
