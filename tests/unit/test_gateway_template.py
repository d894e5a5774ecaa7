"""What the endpoint finds out about the chat template of a model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fake_upstream import FakeModelServer, Script, error, whole
from zluda_stack.gateway.errors import Fault
from zluda_stack.gateway.page import page
from zluda_stack.gateway.server import Server
from zluda_stack.gateway.template_check import findings_of

SYSTEM, TOOL = "zluda-stack-system-mark", "zluda_stack_tool_mark"

Find = Callable[[Script], list[str]]


@pytest.fixture
def find(tmp_path: Path) -> Iterator[Find]:
    servers = []

    def found(script: Script) -> list[str]:
        socket = tmp_path / "model.sock"
        servers.append(FakeModelServer(socket, {"/apply-template": script}))
        return asyncio.run(findings_of(Server(f"unix:{socket}", model=None, slots=1)))

    yield found
    for server in servers:
        server.close()


def rendered(prompt: str) -> Script:
    return whole(json.dumps({"prompt": prompt}).encode())


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (f"{SYSTEM} {TOOL}", []),
        (SYSTEM, ["leaves tools out"]),
        (TOOL, ["system prompt out"]),
        ("", ["system prompt out", "leaves tools out"]),
    ],
)
def test_a_template_that_leaves_something_out_is_found(
    find: Find, prompt: str, words: list[str]
) -> None:
    findings = find(rendered(prompt))
    assert len(findings) == len(words)
    assert all(word in finding for word, finding in zip(words, findings, strict=True))


def test_a_template_that_ends_in_an_exception_is_found(find: Find) -> None:
    (finding,) = find(error(b"500 Internal Server Error", code=500, message="no system!"))
    assert "refuses" in finding


@pytest.mark.parametrize("script", [whole(b"[]"), error(b"404 Not Found", code=404)])
def test_a_server_that_does_not_tell_is_not_accused(find: Find, script: Script) -> None:
    with pytest.raises(Fault):
        find(script)


def test_the_page_shows_what_was_found() -> None:
    told = page("http://x", "Ready", ["leaves <tools> out"]).decode()
    assert "Note: leaves &lt;tools&gt; out." in told
