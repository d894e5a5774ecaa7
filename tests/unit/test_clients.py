"""The settings of the clients, read back as the clients and the shell read them."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import msgspec
import pytest
import yaml

from tests.unit.command_line import run, settle
from tests.unit.connecting import PORT, ROOMY, after_eval, connect, started
from tests.unit.served import served
from zluda_stack.catalog.load import load
from zluda_stack.catalog.schema import ClientMode
from zluda_stack.errors import ExitCode
from zluda_stack.plan.clients import fits
from zluda_stack.render import clients, editors

CLAUDE = load().clients["claude"]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a current folder of the test's own."""
    return settle(tmp_path, monkeypatch)


class TestEnv:
    def test_eval_gives_both_dialects_their_address_and_key(self) -> None:
        key = started(port=8123)
        seen = after_eval(connect("env").out)
        assert seen["OPENAI_BASE_URL"] == "http://127.0.0.1:8123/v1"
        assert seen["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8123"
        assert seen["OPENAI_API_KEY"] == seen["ANTHROPIC_AUTH_TOKEN"] == key

    def test_a_key_for_another_server_is_not_sent_to_this_one(self) -> None:
        started()
        assert "ANTHROPIC_API_KEY" not in after_eval(
            connect("env").out, ANTHROPIC_API_KEY="sk-of-another-server"
        )

    def test_each_stack_has_its_own_settings(self) -> None:
        mine, other = started(), started("other", port=9000)
        seen = after_eval(connect("env", "--name", "other").out)
        assert seen["OPENAI_API_KEY"] == other != mine
        assert seen["OPENAI_BASE_URL"] == "http://127.0.0.1:9000/v1"

    def test_an_ipv6_address_is_in_brackets(self) -> None:
        started(host="::1")
        assert connect("env", "--json").json["ANTHROPIC_BASE_URL"] == f"http://[::1]:{PORT}"

    def test_a_value_with_anything_in_it_survives_the_shell(self) -> None:
        nasty = "a b'c\"d$e`f\\g\nh;i"
        assert after_eval(clients.shell({"NASTY": nasty}))["NASTY"] == nasty

    @pytest.mark.parametrize(
        "client", ["env", "claude", "openai", "vscode", "continue", "cline", "aider"]
    )
    def test_a_stack_that_was_never_started_is_an_engine_failure(self, client: str) -> None:
        outcome = run("connect", client, "--name", "other")
        assert outcome.code == ExitCode.ENGINE
        assert "zluda-stack up --name other" in outcome.err
        assert outcome.out == ""


class TestClaude:
    def test_the_exports_name_the_model_the_context_and_the_key(self) -> None:
        key = started()
        seen = after_eval(connect("claude").out, CLAUDE_CODE_SIMPLE="1")
        assert seen["ANTHROPIC_AUTH_TOKEN"] == key
        assert seen["ANTHROPIC_MODEL"] == "default"
        assert {
            seen[f"ANTHROPIC_DEFAULT_{size}_MODEL"] for size in ("FABLE", "HAIKU", "SONNET", "OPUS")
        } == {"default"}
        assert seen["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == str(ROOMY)
        assert int(seen["API_TIMEOUT_MS"]) > 600_000
        assert seen["CLAUDE_CODE_ATTRIBUTION_HEADER"] == "0"
        assert seen["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"
        assert "CLAUDE_CODE_SIMPLE" not in seen

    def test_simple_sets_the_variable_that_shortens_the_prompt(self) -> None:
        started()
        assert after_eval(connect("claude", "--simple").out)["CLAUDE_CODE_SIMPLE"] == "1"

    @pytest.mark.parametrize("mode", CLAUDE.modes, ids=lambda mode: mode.name)
    @pytest.mark.parametrize("factor", [1, 2, 8])
    def test_the_longest_answer_leaves_the_client_room_for_its_prompt(
        self, mode: ClientMode, factor: int
    ) -> None:
        """The client keeps its longest answer, at most 20,000 tokens, and 3,000 more free."""
        context = mode.context_floor * factor
        started(context=context)
        flags = ("--simple",) if mode.name == "simple" else ()
        seen = after_eval(connect("claude", *flags).out)
        reserve = min(int(seen["CLAUDE_CODE_MAX_OUTPUT_TOKENS"]), 20_000) + 3_000
        assert reserve + mode.prompt_tokens < context

    def test_a_context_below_the_clients_prompt_is_refused_with_numbers_and_the_way_on(
        self,
    ) -> None:
        default, simple = CLAUDE.modes
        started(context=default.context_floor - 1)
        outcome = run("connect", "claude")
        assert outcome.code == ExitCode.REFUSED
        for number in (default.context_floor, default.prompt_tokens, default.context_floor - 1):
            assert str(number) in outcome.err
        assert "--simple" in outcome.err
        assert outcome.out == ""
        assert simple.context_floor < default.context_floor
        connect("claude", "--simple")

    def test_a_context_too_small_for_every_mode_does_not_offer_simple(self) -> None:
        started(context=512)
        for arguments in (("claude",), ("claude", "--simple")):
            outcome = run("connect", *arguments)
            assert outcome.code == ExitCode.REFUSED
            assert "connect claude --simple" not in outcome.err

    def test_the_floor_itself_is_enough(self) -> None:
        for mode in CLAUDE.modes:
            assert fits(CLAUDE, mode, mode.context_floor) is None
            assert fits(CLAUDE, mode, mode.context_floor - 1) is not None

    def test_json_is_the_env_block(self) -> None:
        started()
        block = connect("claude", "--json", "--simple").json["env"]
        assert block["CLAUDE_CODE_SIMPLE"] == "1"
        assert (
            after_eval(connect("claude", "--simple").out).items()
            >= {name: value for name, value in block.items() if value}.items()
        )


class FakeEndpoint(BaseHTTPRequestHandler):
    """Answers a chat completion with the request it got, where the real endpoint has a model."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        seen = json.dumps([self.path, self.headers["Authorization"], body["model"]])
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": seen},
        }
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
        raw = json.dumps({**answer, "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class TestOpenai:
    def test_the_python_example_runs_with_the_real_package(self) -> None:
        with served(FakeEndpoint) as port:
            key = started(port=port)
            shown = connect("openai").out
            program = shown[shown.index("from openai") :]
            ran = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, check=True
            )
        assert json.loads(ran.stdout) == ["/v1/chat/completions", f"Bearer {key}", "default"]

    def test_the_table_and_the_json_say_the_same(self) -> None:
        started()
        values = connect("openai", "--json").json
        assert set(values) == {"base_url", "api_key", "model"}
        table = connect("openai").out
        assert all(value in table for value in values.values())


class TestVscode:
    def test_the_chat_settings_split_the_context_between_prompt_and_answer(self) -> None:
        key = started()
        (provider,) = connect("vscode", "--json").json["chatLanguageModels.json"]
        assert (provider["vendor"], provider["apiType"]) == ("customendpoint", "chat-completions")
        assert provider["apiKey"] == key
        (model,) = provider["models"]
        assert model["url"] == f"http://127.0.0.1:{PORT}/v1/chat/completions"
        assert model["maxInputTokens"] + model["maxOutputTokens"] == ROOMY

    def test_the_text_holds_json_that_parses_back(self) -> None:
        started()
        text = connect("vscode").out
        models, _ = json.JSONDecoder().raw_decode(text, text.index("["))
        assert models == connect("vscode", "--json").json["chatLanguageModels.json"]

    @pytest.mark.parametrize("tools", [True, False, None])
    def test_tool_calling_is_claimed_only_for_a_model_that_is_known_to_do_it(
        self, tools: bool | None
    ) -> None:
        to = clients.Connection(
            stack="s", title="t", url="http://h:1", key="k", context=4096, tools=tools
        )
        (provider,) = msgspec.to_builtins(editors.vscode_models(to))
        assert provider["models"][0]["toolCalling"] is (tools is True)
        (model,) = msgspec.to_builtins(editors.continue_config(to))["models"]
        assert ("tool_use" in model.get("capabilities", ())) is (tools is True)


class TestOthers:
    def test_continues_yaml_parses_back(self) -> None:
        key = started()
        text = connect("continue").out
        config = yaml.safe_load(text[text.index("name:") :])
        assert config == connect("continue", "--json").json["config.yaml"]
        assert config["schema"] == "v1"
        (model,) = config["models"]
        assert (model["apiBase"], model["apiKey"]) == (f"http://127.0.0.1:{PORT}/v1", key)
        assert model["defaultCompletionOptions"]["contextLength"] == ROOMY

    def test_clines_form_and_json_say_the_same(self) -> None:
        started()
        told = connect("cline", "--json").json
        form = told["form"]
        assert form["Base URL"] == f"http://127.0.0.1:{PORT}/v1"
        assert form["Context Window Size"] == ROOMY
        text = connect("cline").out
        assert all(str(value) in text for value in form.values())
        assert shlex.split(text.splitlines()[-1]) == told["command"]

    def test_aiders_exports_name_the_model_that_its_file_describes(self) -> None:
        key = started()
        text = connect("aider").out
        exports, _, metadata = text.partition("# ~/.aider.model.metadata.json")
        seen = after_eval(exports)
        assert (seen["OPENAI_API_BASE"], seen["OPENAI_API_KEY"]) == (
            f"http://127.0.0.1:{PORT}/v1",
            key,
        )
        assert json.loads(metadata)[seen["AIDER_MODEL"]]["max_input_tokens"] == ROOMY
