"""The endpoint of a running embedded stack, asked by the official clients."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

import anthropic
import openai
import pytest
import requests

from tests.e2e.conftest import EmbeddedStack, eventually
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
    checks = selftest.run(running.url, running.key)
    assert len(checks) == 4
    assert [check.detail for check in checks] == [""] * 4
    assert all(check.ok and check.text for check in checks)


def test_the_self_test_tells_a_refused_key_and_an_absent_endpoint(running: EmbeddedStack) -> None:
    refused = selftest.run(running.url, "wrong")
    assert all(not check.ok and "401" in check.detail for check in refused)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        absent = selftest.run(f"http://127.0.0.1:{nobody.getsockname()[1]}", "any")
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
    selftest.run(running.url, running.key)
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
