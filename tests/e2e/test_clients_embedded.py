"""The clients of an embedded stack with the real small model, as a user starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import roomy_model
from tests.e2e.conftest import EmbeddedStack, own_xdg_folders
from tests.unit.command_line import run
from zluda_stack.errors import ExitCode

pytestmark = pytest.mark.embedded

SLOW = pytest.mark.skipif(
    not os.environ.get("TEST_SLOW"), reason="takes minutes: set TEST_SLOW=1 to run it"
)


@pytest.fixture(scope="module")
def small(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStack]:
    """The small model as it is."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        own_xdg_folders(monkeypatch, tmp_path_factory.mktemp("small"))
        made = EmbeddedStack("small", gguf, context=8192)
        made.up()
        yield made
        made.down()


@pytest.fixture
def roomy(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedStack]:
    """The small model with room for Claude Code's default prompt."""
    own_xdg_folders(monkeypatch, tmp_path)
    model = roomy_model.make(gguf, tmp_path / "roomy.gguf", context=65536)
    made = EmbeddedStack("roomy", model, context=65536)
    made.up()
    yield made
    made.down()


def started(
    stack: EmbeddedStack, program: Path, *arguments: str, folder: Path, timeout: float
) -> dict[str, Any]:
    """What `zluda-stack claude ARGUMENTS` tells, with nothing of the user's environment."""
    shown = folder / "bin"
    shown.mkdir()
    (shown / "claude").symlink_to(program)
    kept = {name: value for name, value in os.environ.items() if name.startswith("XDG_")}
    ran = subprocess.run(
        [sys.executable, "-m", "zluda_stack", "claude", "--name", stack.name, *arguments],
        env={**kept, "HOME": str(folder), "PATH": f"{shown}:/usr/bin:/bin"},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ran.stdout, ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def test_the_check_tells_what_the_small_model_will_not_manage(small: EmbeddedStack) -> None:
    outcome = run("connect", "claude", "--check", "--json", "--name", small.name)
    assert outcome.code == ExitCode.OK, outcome.out
    verdicts = {one["name"]: one["verdict"] for one in outcome.json["claude"]}
    assert verdicts == {
        "streaming": "ok",
        "model names": "ok",
        "context": "limit",
        "token count": "ok",
        "system prompt": "ok",
        "tools": "limit",
        "JSON schema": "ok",
        "pictures": "limit",
    }


def test_claude_code_gets_an_answer_in_its_simple_mode(
    small: EmbeddedStack, claude_program: Path, tmp_path: Path
) -> None:
    asked = ("--simple", "-p", "Say hello.", "--output-format", "json")
    told = started(small, claude_program, *asked, folder=tmp_path, timeout=240)
    assert not told["is_error"], told
    assert told["result"]


@SLOW
@pytest.mark.timeout(3600)
def test_claude_code_gets_an_answer_with_its_default_prompt(
    roomy: EmbeddedStack, claude_program: Path, tmp_path: Path
) -> None:
    asked = ("-p", "Say hello.", "--output-format", "json")
    told = started(roomy, claude_program, *asked, folder=tmp_path, timeout=3500)
    assert not told["is_error"], told
    assert told["result"]
    used = told["usage"]["input_tokens"] + told["usage"]["cache_read_input_tokens"]
    assert used > 10_000
