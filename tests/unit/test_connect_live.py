"""What is seen of a running stack: the check for a client, and starting Claude Code with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.command_line import Outcome, run, settle, write
from tests.unit.connecting import connect, started
from tests.unit.fake_endpoint import FakeModel, fake_endpoint
from zluda_stack.errors import ExitCode

Findings = dict[str, dict[str, Any]]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a current folder of the test's own."""
    return settle(tmp_path, monkeypatch)


@contextmanager
def serving(model: FakeModel, **stack: Any) -> Iterator[str]:
    """A stack whose endpoint serves `model`; gives its key."""
    with fake_endpoint(model) as port:
        yield started(port=port, **stack)


def checked(model: FakeModel, client: str = "claude") -> tuple[Outcome, Findings]:
    """The outcome of a check and its findings by name."""
    with serving(model):
        outcome = run("connect", client, "--check", "--json")
    found = json.JSONDecoder().raw_decode(outcome.out)[0]
    return outcome, {one["name"]: one for one in found[client]}


def limits(findings: Findings) -> set[str]:
    return {name for name, one in findings.items() if one["verdict"] == "limit"}


def faults(findings: Findings) -> set[str]:
    return {name for name, one in findings.items() if one["verdict"] == "fault"}


class TestCheck:
    @pytest.mark.parametrize("client", ["claude", "openai"])
    def test_a_model_that_can_do_all_passes(self, client: str) -> None:
        outcome, findings = checked(FakeModel(), client)
        assert outcome.code == ExitCode.OK
        assert {one["verdict"] for one in findings.values()} == {"ok"}
        assert "Paris" in findings["tools"]["told"]

    @pytest.mark.parametrize(
        ("model", "lacks"),
        [
            (FakeModel(context=8192), "context"),
            (FakeModel(context=None), "context"),
            (FakeModel(renders_system=False), "system prompt"),
            (FakeModel(renders_tools=False), "tools"),
            (FakeModel(calls_tools=False), "tools"),
            (FakeModel(arguments='{"city": '), "tools"),
            (FakeModel(arguments='{"town": "Paris"}'), "tools"),
            (FakeModel(modalities=("text",)), "pictures"),
            (FakeModel(ends=False), "JSON schema"),
        ],
    )
    def test_what_the_model_will_not_manage_is_told_and_is_no_failure(
        self, model: FakeModel, lacks: str
    ) -> None:
        outcome, findings = checked(model)
        assert outcome.code == ExitCode.OK
        assert limits(findings) == {lacks}
        assert faults(findings) == set()

    def test_the_short_prompt_is_judged_when_it_is_the_one_that_is_used(self) -> None:
        with serving(FakeModel(context=8192)):
            outcome = run("connect", "claude", "--simple", "--check", "--json")
        assert outcome.code == ExitCode.OK
        (context,) = (one for one in outcome.json["claude"] if one["name"] == "context")
        assert context["verdict"] == "ok"
        assert context["told"].startswith("8192 tokens")

    def test_what_is_being_waited_for_is_said_beside_the_findings(self) -> None:
        with serving(FakeModel()):
            outcome = run("connect", "openai", "--check")
        waited = [line for line in outcome.err.splitlines() if line.startswith("asking")]
        told = [line.split(":")[0].removeprefix("✓ ") for line in outcome.out.splitlines()[1:]]
        assert waited == [f"asking the endpoint: {name} ..." for name in told]
        assert "tools" in told

    @pytest.mark.parametrize(
        ("model", "wrong"),
        [
            (FakeModel(own_name="llama"), {"model names"}),
            (FakeModel(miscounts_by=40), {"token count"}),
        ],
    )
    def test_an_endpoint_that_does_wrong_fails_the_check(
        self, model: FakeModel, wrong: set[str]
    ) -> None:
        outcome, findings = checked(model)
        assert outcome.code == ExitCode.ENGINE
        assert faults(findings) == wrong

    def test_an_endpoint_that_refuses_is_told_with_its_status(self) -> None:
        outcome, findings = checked(FakeModel(status=401))
        assert outcome.code == ExitCode.ENGINE
        assert "401" in findings["streaming"]["told"]

    @pytest.mark.parametrize(
        "model", [FakeModel(calls_tools=False), FakeModel(arguments="Paris, I think")]
    )
    def test_a_client_of_openais_dialect_learns_of_tools_too(self, model: FakeModel) -> None:
        outcome, findings = checked(model, "openai")
        assert outcome.code == ExitCode.OK
        assert limits(findings) == {"tools"}

    def test_a_template_without_tools_is_told_before_the_model_is_let_talk(self) -> None:
        # This one would call: only its template keeps the tools from it.
        outcome, findings = checked(FakeModel(renders_tools=False), "openai")
        assert outcome.code == ExitCode.OK
        assert findings["tools"]["told"].startswith("the model's template leaves out tools.")

    def test_the_context_that_is_really_served_counts_and_not_the_planned_one(self) -> None:
        with serving(FakeModel(context=4096), context=65536):
            told = connect("claude", "--check").out
        assert "the model is served with 4096" in told

    def test_people_are_told_what_they_go_without(self) -> None:
        with serving(FakeModel(renders_tools=False)) as key:
            told = connect("claude", "--check").out
        assert "- tools: the model's template leaves out tools." in told
        assert "edit no files" in told
        assert key not in told

    def test_without_a_client_it_is_asked_in_both_dialects(self) -> None:
        with serving(FakeModel()):
            assert set(connect("--check", "--json").json) == {"claude", "openai"}

    def test_writing_claude_codes_settings_checks_a_running_stack(self) -> None:
        with serving(FakeModel()):
            outcome = connect("claude", "--write", "mine.json", "--json")
        assert {one["verdict"] for one in outcome.json["claude"]} == {"ok"}

    @pytest.mark.parametrize("client", ["claude", "openai", "vscode", "continue", "cline"])
    def test_a_stack_that_is_not_up_is_an_engine_failure(self, client: str) -> None:
        started(port=9)
        outcome = run("connect", client, "--check")
        assert outcome.code == ExitCode.ENGINE
        assert "zluda-stack up" in outcome.err

    @pytest.mark.parametrize("option", [["--check"], ["--json"], ["--name", "other"]])
    def test_an_option_before_the_client_is_refused_and_not_lost(self, option: list[str]) -> None:
        started()
        outcome = run("connect", *option, "openai")
        assert outcome.code == ExitCode.USAGE
        assert "behind the client" in outcome.err + outcome.out


FAKE_CLAUDE = f"""#!{sys.executable}
import json, os, sys
settings = json.load(open(sys.argv[sys.argv.index("--settings") + 1]))
print(json.dumps({{"arguments": sys.argv[1:], "settings": settings, "env": dict(os.environ)}}))
sys.exit(7)
"""


class TestClaude:
    @pytest.fixture
    def installed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A program `claude` that tells how it was started, first in the PATH."""
        program = write(tmp_path / "bin" / "claude", FAKE_CLAUDE)
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")
        return program

    def start(self, *arguments: str) -> tuple[int, Any]:
        """The exit status and what the fake client tells, of a process of its own."""
        ran = subprocess.run(
            [sys.executable, "-m", "zluda_stack", "claude", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.returncode, json.loads(ran.stdout)

    @pytest.mark.usefixtures("installed")
    def test_the_client_takes_over_with_its_arguments_and_exit_status(self) -> None:
        with serving(FakeModel()) as key:
            status, told = self.start("-p", "say hello", "--name", "mine", "-v", "--json")
        assert status == 7
        assert told["arguments"][2:] == ["-p", "say hello", "--name", "mine", "-v", "--json"]
        assert told["settings"]["env"]["ANTHROPIC_AUTH_TOKEN"] == key
        assert told["env"]["ANTHROPIC_AUTH_TOKEN"] == key
        assert key not in " ".join(told["arguments"])

    @pytest.mark.usefixtures("installed")
    def test_what_the_shell_has_for_another_server_does_not_count(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-another-server")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://elsewhere.example")
        with serving(FakeModel()):
            _, told = self.start("--", "--name")
        assert told["arguments"][2:] == ["--name"]
        assert "ANTHROPIC_API_KEY" not in told["env"]
        assert told["env"]["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")
        assert told["settings"]["env"]["ANTHROPIC_API_KEY"] == ""

    @pytest.mark.usefixtures("installed")
    def test_simple_is_set_where_it_counts(self) -> None:
        with serving(FakeModel(), context=8192):
            _, told = self.start("--simple", "--name=default")
        assert told["env"]["CLAUDE_CODE_SIMPLE"] == "1"
        assert told["arguments"][2:] == []

    @pytest.mark.usefixtures("installed")
    def test_the_settings_of_this_run_are_for_the_owner_alone(self) -> None:
        with serving(FakeModel()):
            _, told = self.start()
        assert Path(told["arguments"][1]).stat().st_mode & 0o777 == 0o600

    @pytest.mark.usefixtures("installed")
    def test_a_context_below_the_clients_prompt_is_refused(self) -> None:
        started(context=8192)
        outcome = run("claude", "-p", "hi")
        assert outcome.code == ExitCode.REFUSED
        assert "--simple" in outcome.err

    @pytest.mark.usefixtures("installed")
    def test_a_stack_that_is_not_up_is_an_engine_failure(self) -> None:
        started(port=9)
        assert run("claude").code == ExitCode.ENGINE

    def test_a_dry_run_prints_the_command_and_writes_nothing(self, installed: Path) -> None:
        started(port=9)
        outcome = run("claude", "--dry-run", "-p", "say hello")
        assert outcome.code == ExitCode.OK
        command, settings, file, *arguments = outcome.out.split()
        assert (command, settings) == (str(installed), "--settings")
        assert arguments == ["-p", "'say", "hello'"]
        assert not Path(file).exists()

    def test_a_dry_run_has_what_makes_the_prompt_short(self, installed: Path) -> None:
        started(port=9, context=8192)
        outcome = run("claude", "--simple", "--dry-run")
        assert outcome.out.startswith(f"CLAUDE_CODE_SIMPLE=1 {installed} --settings ")

    def test_a_client_that_is_not_installed_is_said_to_be_missing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started()
        monkeypatch.setenv("PATH", "")
        outcome = run("claude")
        assert outcome.code == ExitCode.HOST
        assert "no program claude in the PATH" in outcome.err
        assert "https://code.claude.com/docs" in outcome.err
