"""The endpoint of a running embedded stack, asked by the official clients."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
import requests

from tests.e2e.conftest import EmbeddedStack, eventually
from zluda_stack.plan.types import EndpointPlan
from zluda_stack.verify import selftest

pytestmark = pytest.mark.embedded

QUESTION = "Say hello in one short sentence."


@pytest.fixture
def gpt(running: EmbeddedStack) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{running.url}/v1", api_key=running.key, max_retries=0)


@pytest.fixture
def claude(running: EmbeddedStack) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=running.url, auth_token=running.key, max_retries=0)


@pytest.mark.parametrize("model", ["default", "smollm2-135m"])
def test_openais_client_gets_an_answer(gpt: openai.OpenAI, model: str) -> None:
    answer = gpt.chat.completions.create(
        model=model, max_tokens=16, messages=[{"role": "user", "content": QUESTION}]
    )
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in {"stop", "length"}
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0
    assert str(answer._request_id).startswith("req_")


def test_openais_client_gets_a_stream(gpt: openai.OpenAI) -> None:
    chunks = list(
        gpt.chat.completions.create(
            model="default",
            max_tokens=16,
            messages=[{"role": "user", "content": QUESTION}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] in {"stop", "length"}
    assert any(chunk.usage for chunk in chunks)


def test_anthropics_client_gets_an_answer(claude: anthropic.Anthropic) -> None:
    answer = claude.messages.create(
        model="default", max_tokens=16, messages=[{"role": "user", "content": QUESTION}]
    )
    assert answer.content[0].type == "text"
    assert answer.content[0].text
    assert answer.stop_reason in {"end_turn", "max_tokens"}
    assert answer.usage.output_tokens > 0


def test_anthropics_client_gets_a_stream(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(
        model="default", max_tokens=16, messages=[{"role": "user", "content": QUESTION}]
    ) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text
    assert final.stop_reason in {"end_turn", "max_tokens"}
    assert final.usage.output_tokens > 0


def test_anthropics_client_counts_tokens_and_may_use_x_api_key(running: EmbeddedStack) -> None:
    client = anthropic.Anthropic(base_url=f"{running.url}/v1", api_key=running.key, max_retries=0)
    count = client.messages.count_tokens(
        model="default", messages=[{"role": "user", "content": QUESTION}]
    )
    assert count.input_tokens > len(QUESTION.split())


def test_a_wrong_key_is_an_authentication_error_for_both_clients(running: EmbeddedStack) -> None:
    gpt = openai.OpenAI(base_url=f"{running.url}/v1", api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        gpt.models.list()
    claude = anthropic.Anthropic(base_url=running.url, api_key="wrong", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError):
        claude.messages.create(
            model="default", max_tokens=4, messages=[{"role": "user", "content": QUESTION}]
        )


@pytest.mark.parametrize("stream", [True, False])
def test_the_name_that_was_asked_for_comes_back(
    gpt: openai.OpenAI, claude: anthropic.Anthropic, stream: bool
) -> None:
    ask: list[Any] = [{"role": "user", "content": QUESTION}]
    if stream:
        told = [
            next(
                iter(gpt.chat.completions.create(model="gpt-4o", messages=ask, stream=True))
            ).model,
            _first_message(claude, "claude-sonnet-4-5").model,
        ]
    else:
        told = [
            gpt.chat.completions.create(model="gpt-4o", max_tokens=1, messages=ask).model,
            claude.messages.create(model="claude-sonnet-4-5", max_tokens=1, messages=ask).model,
        ]
    assert told == ["gpt-4o", "claude-sonnet-4-5"]


def _first_message(claude: anthropic.Anthropic, model: str, text: str = QUESTION) -> Any:
    with claude.messages.create(
        model=model, max_tokens=4, messages=[{"role": "user", "content": text}], stream=True
    ) as stream:
        first = next(iter(stream))
    assert first.type == "message_start"
    return first.message


def test_a_stream_begins_with_message_start_whatever_the_first_token_is(
    claude: anthropic.Anthropic,
) -> None:
    # In about a third of these the first token is a part of a character.
    for _ in range(12):
        with claude.messages.stream(
            model="default", max_tokens=4, messages=[{"role": "user", "content": "用中文说你好"}]
        ) as stream:
            first, *_, last = stream
        assert (first.type, last.type) == ("message_start", "message_stop")


def test_a_stop_sequence_is_the_reason_when_it_was_one(claude: anthropic.Anthropic) -> None:
    answer = claude.messages.create(
        model="default",
        max_tokens=40,
        extra_body={"temperature": 0},  # some answers by chance have no blank in them
        stop_sequences=[" "],
        messages=[{"role": "user", "content": QUESTION}],
    )
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", " ")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "add"}])
def test_a_tool_that_must_be_called_is_called_with_arguments_of_its_schema(
    claude: anthropic.Anthropic, choice: Any, stream: bool
) -> None:
    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tools: list[Any] = [
        {"name": name, "description": name, "input_schema": number} for name in ("add", "take")
    ]
    asked: dict[str, Any] = {
        "model": "default",
        "max_tokens": 200,
        "tools": tools,
        "tool_choice": choice,
        "messages": [{"role": "user", "content": "Add five."}],
    }
    answer: Any
    if stream:
        with claude.messages.stream(**asked) as events:
            answer = events.get_final_message()
    else:
        answer = claude.messages.create(**asked)
    (call,) = answer.content
    assert (answer.stop_reason, call.type) == ("tool_use", "tool_use")
    assert call.name in {"add", "take"} if choice["type"] == "any" else call.name == "add"
    assert isinstance(call.input["n"], int)


def test_an_answer_follows_a_json_schema(claude: anthropic.Anthropic) -> None:
    schema = {
        "type": "object",
        "properties": {"title": {"type": "string", "maxLength": 20}},
        "required": ["title"],
        "additionalProperties": False,
    }
    answer = claude.messages.create(
        model="default",
        max_tokens=200,
        messages=[{"role": "user", "content": QUESTION}],
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )
    assert answer.content[0].type == "text"
    assert list(json.loads(answer.content[0].text)) == ["title"]


def test_a_system_message_in_mid_conversation_counts_as_the_users_text(
    claude: anthropic.Anthropic,
) -> None:
    def tokens(messages: Any) -> int:
        return claude.messages.count_tokens(model="default", messages=messages).input_tokens

    system = [{"type": "text", "text": "Be brief."}]
    reminder = "<system-reminder>\nBe brief.\n</system-reminder>"
    folded = [{"type": "text", "text": text} for text in (QUESTION, reminder)]
    assert tokens(
        [{"role": "user", "content": QUESTION}, {"role": "system", "content": system}]
    ) == tokens([{"role": "user", "content": folded}])


def test_tokens_are_counted_25_at_once_while_the_model_is_busy(
    claude: anthropic.Anthropic, gpt: openai.OpenAI
) -> None:
    with _endless(gpt), ThreadPoolExecutor(25) as pool:
        counts = list(
            pool.map(
                lambda words: (
                    claude.messages.count_tokens(
                        model="default", messages=[{"role": "user", "content": "word " * words}]
                    ).input_tokens
                ),
                range(1, 26),
            )
        )
    assert counts == sorted(set(counts))


@contextmanager
def _endless(gpt: openai.OpenAI) -> Iterator[None]:
    """The only slot of the model is taken meanwhile."""
    with gpt.chat.completions.create(
        model="default",
        max_tokens=2000,
        messages=[{"role": "user", "content": QUESTION}],
        stream=True,
        extra_body={"ignore_eos": True},
    ) as stream:
        next(iter(stream))
        yield


def test_streams_that_wait_for_the_model_begin_and_go_on_when_it_is_free(
    claude: anthropic.Anthropic, gpt: openai.OpenAI
) -> None:
    ask: list[Any] = [{"role": "user", "content": QUESTION}]
    with ExitStack() as stack:
        with _endless(gpt):
            waiting = stack.enter_context(
                claude.messages.create(model="x", max_tokens=4, messages=ask, stream=True)
            )
            events = iter(waiting)
            first = next(events)
            assert first.type == "message_start"
            assert first.message.usage.input_tokens > len(QUESTION.split())
            # Its headers have come, so a comment has too.
            chat = stack.enter_context(
                gpt.chat.completions.create(model="x", max_tokens=4, messages=ask, stream=True)
            )
        *_, last = events
        assert last.type == "message_stop"
        assert [chunk.choices[0].finish_reason for chunk in chat if chunk.choices][-1]


def test_a_response_of_openais_client_that_is_cut_off_is_incomplete(gpt: openai.OpenAI) -> None:
    answer = gpt.responses.create(model="gpt-x", input=QUESTION, max_output_tokens=2)
    assert (answer.status, answer.model) == ("incomplete", "gpt-x")
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    last = list(gpt.responses.create(model="x", input="Hi", max_output_tokens=2, stream=True))[-1]
    assert last.type == "response.incomplete"
    assert last.response.status == "incomplete"


def test_openais_client_puts_the_stream_of_a_response_together(gpt: openai.OpenAI) -> None:
    with gpt.responses.stream(model="x", input=QUESTION, temperature=0) as stream:
        parts = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert final.output_text == "".join(parts) != ""


def test_anthropics_client_lists_and_finds_models(claude: anthropic.Anthropic) -> None:
    assert {model.id for model in claude.models.list(limit=1)} == {"default", "smollm2-135m"}
    assert claude.models.retrieve("claude-sonnet-4-5").type == "model"
    with pytest.raises(anthropic.NotFoundError):
        claude.models.retrieve("other")


def test_what_this_model_cannot_do_is_refused_once(running: EmbeddedStack) -> None:
    gpt = openai.OpenAI(base_url=f"{running.url}/v1", api_key=running.key)
    with pytest.raises(openai.BadRequestError, match="embeddings"):
        gpt.embeddings.create(model="default", input="a")
    with pytest.raises(openai.BadRequestError, match="Infill is not supported"):
        gpt.completions.create(model="default", prompt="a", suffix="b", max_tokens=2)


def test_openais_client_is_told_that_its_prompt_is_too_long(gpt: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        gpt.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "word " * 4000}]
        )
    assert refused.value.code == "context_length_exceeded"


def test_the_page_says_what_runs(running: EmbeddedStack) -> None:
    answer = requests.get(running.url, timeout=10)
    assert answer.status_code == 200
    assert "smollm2-135m" in answer.text
    assert running.key not in answer.text


def test_a_template_without_tools_is_told_in_the_log_and_on_the_page(
    running: EmbeddedStack,
) -> None:
    # The small model's own template is one of these.
    assert eventually(lambda: "leaves tools out" in requests.get(running.url, timeout=10).text)
    log = list(running.engine.logs(running.name, "endpoint", 1000, follow=False))
    assert any("WARNING" in line and "leaves tools out" in line for line in log)
    assert not any("system prompt out" in line for line in log)


def test_default_and_the_real_name_are_listed_and_found(gpt: openai.OpenAI) -> None:
    names = {"default", "smollm2-135m"}
    assert {model.id for model in gpt.models.list()} == names
    assert {gpt.models.retrieve(name).id for name in names} == names
    with pytest.raises(openai.NotFoundError):
        gpt.models.retrieve("other")


def test_an_image_that_the_model_cannot_see_is_the_clients_mistake(gpt: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="image input is not supported"):
        gpt.chat.completions.create(
            model="default",
            max_tokens=4,
            messages=[
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "image_url",
                            "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="},
                        }
                    ],
                }
            ],
        )


def test_an_image_is_refused_in_the_words_at_which_claude_code_leaves_it_out(
    claude: anthropic.Anthropic,
) -> None:
    source: Any = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    image: Any = {"type": "image", "source": source}
    with pytest.raises(anthropic.BadRequestError, match="capability_rejected: image_block"):
        claude.messages.create(
            model="default", max_tokens=4, messages=[{"role": "user", "content": [image]}]
        )


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("body", ["{}", "[]", "no JSON"])
def test_a_body_that_is_no_request_is_told_in_anthropics_shape(
    running: EmbeddedStack, path: str, body: str
) -> None:
    answer = requests.post(
        running.url + path, data=body, headers={"x-api-key": running.key}, timeout=30
    )
    assert answer.status_code == 400
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.json()["request_id"] == answer.headers["request-id"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_above_the_context_is_told_as_claude_code_knows_it(
    claude: anthropic.Anthropic, stream: bool
) -> None:
    with pytest.raises(
        anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 2048 maximum"
    ):
        claude.messages.create(
            model="default",
            max_tokens=4,
            stream=stream,
            messages=[{"role": "user", "content": "word " * 4000}],
        )


def test_the_inference_log_warns_of_nothing_that_is_not_so(running: EmbeddedStack) -> None:
    log = list(running.engine.logs(running.name, "inference", 10_000, follow=False))
    assert log
    assert not [line for line in log if "security" in line or "CORS" in line]


def test_the_self_test_passes_and_shows_what_was_said(running: EmbeddedStack) -> None:
    checks = selftest.run(running.plan.endpoint, running.key)
    assert len(checks) == 4
    assert [check.detail for check in checks] == [""] * 4
    assert all(check.ok and check.text for check in checks)


def test_the_self_test_tells_a_refused_key_and_an_absent_endpoint(running: EmbeddedStack) -> None:
    refused = selftest.run(running.plan.endpoint, "wrong")
    assert all(not check.ok and "401" in check.detail for check in refused)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        absent = selftest.run(EndpointPlan(bind="127.0.0.1", port=port, host="127.0.0.1"), "any")
    assert all(not check.ok and "no answer" in check.detail for check in absent)


@pytest.mark.parametrize("stream", [True, False])
def test_a_long_generation_stops_when_its_client_goes_away(
    running: EmbeddedStack, stream: bool
) -> None:
    def cancelled() -> int:
        lines = running.engine.logs(running.name, "inference", 10_000, follow=False)
        return sum("cancel task" in line for line in lines)

    before = cancelled()
    body = {
        "model": "default",
        "stream": stream,
        "max_tokens": 2000,
        "ignore_eos": True,
        "messages": [{"role": "user", "content": QUESTION}],
    }
    headers = {"x-api-key": running.key}
    with requests.Session() as session:
        if stream:
            answer = session.post(
                f"{running.url}/v1/chat/completions", json=body, headers=headers, stream=True
            )
            assert next(answer.iter_content(None))
            answer.close()
        else:
            with pytest.raises(requests.Timeout):
                session.post(
                    f"{running.url}/v1/chat/completions", json=body, headers=headers, timeout=1
                )
    assert eventually(lambda: cancelled() == before + 1)


def test_the_device_that_computes_is_the_one_llama_cpp_names(running: EmbeddedStack) -> None:
    device = running.status().device
    assert device is not None
    assert device.startswith("CPU (")


def test_only_the_owner_can_reach_the_key_and_the_server_behind_it(running: EmbeddedStack) -> None:
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (running.folder, running.folder / "api-key", running.folder / "inference.sock")
    }
    assert modes == {running.name: 0o700, "api-key": 0o600, "inference.sock": 0o600}


def test_the_key_is_in_no_command_line_no_environment_and_no_other_file(
    running: EmbeddedStack,
) -> None:
    selftest.run(running.plan.endpoint, running.key)
    secret = running.key.encode()
    for pid in running.pids().values():
        assert secret not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert secret not in Path(f"/proc/{pid}/environ").read_bytes()
    files = [path for path in running.folder.iterdir() if path.is_file()]
    assert {path.name for path in files if secret in path.read_bytes()} == {"api-key"}


def test_logs_are_told_apart_by_service_and_the_tail_is_kept(running: EmbeddedStack) -> None:
    every = list(running.engine.logs(running.name, None, 1000, follow=False))
    assert {line.split(": ")[0] for line in every} == {"supervisor", "inference", "endpoint"}
    own = list(running.engine.logs(running.name, "inference", 3, follow=False))
    assert [f"inference: {line}" for line in own] == [
        line for line in every if line.startswith("inference: ")
    ][-3:]


def test_the_supervisor_stays_small(running: EmbeddedStack) -> None:
    pid = running.pids()["supervisor"]
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    assert resident < 60 * 1000 * 1000


def test_the_health_check_needs_no_key(running: EmbeddedStack) -> None:
    answer = requests.get(f"{running.url}/health", timeout=10)
    assert (answer.status_code, json.loads(answer.text)) == (200, {"status": "ok"})
