"""The real Claude Code client against the endpoint."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.claude_code import ClaudeCode
from tests.fake_coder import FakeCoder, Json, call, in_order, text
from tests.running_gateway import KEY, RunningGateway
from zluda_stack.render import claude_code
from zluda_stack.render.clients import Connection

ROOMY = 65536
# A PNG of one pixel.
DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


@pytest.fixture
def client(claude_program: Path, gateway: RunningGateway, tmp_path: Path) -> ClaudeCode:
    """The client with the settings of `connect claude`."""
    to = Connection(
        stack="default",
        title="a model",
        url=f"http://127.0.0.1:{gateway.port}",
        key=KEY,
        context=ROOMY,
        tools=None,
    )
    variables = {name: value for name, value in claude_code.environment(to).items() if value}
    return ClaudeCode(claude_program, tmp_path / "home", variables)


@pytest.fixture
def coder(gateway: RunningGateway) -> Iterator[FakeCoder]:
    server = FakeCoder(gateway.socket, in_order(text("Hello there.")))
    yield server
    server.close()


def results(body: Json) -> list[str]:
    """What the tools gave back in this conversation so far."""
    blocks = [
        block
        for message in body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    return [json.dumps(block["content"]) for block in blocks if block["type"] == "tool_result"]


def test_its_default_prompt_gets_an_answer(client: ClaudeCode, coder: FakeCoder) -> None:
    told = client.ask("Say hello.")
    assert (told["is_error"], told["result"]) == (False, "Hello there.")
    (asked,) = coder.requests
    assert len(json.dumps(asked)) > 40_000


def test_it_edits_a_file_with_its_tools_twice_in_one_conversation(
    client: ClaudeCode, coder: FakeCoder
) -> None:
    file = client.project / "poem.txt"
    file.write_text("roses are red\nviolets are blue\n")
    edits = ("red", "grey"), ("blue", "green")
    first, second = (
        call("Edit", file_path=str(file), old_string=old, new_string=new) for old, new in edits
    )
    coder.decide = in_order(
        call("Read", file_path=str(file)), first, text("Done."), second, text("Done again.")
    )
    accepting = ("--permission-mode", "acceptEdits")

    assert client.ask("Make the roses grey.", *accepting)["result"] == "Done."
    assert file.read_text() == "roses are grey\nviolets are blue\n"
    assert client.ask("Now the violets green.", "--continue", *accepting)["result"] == "Done again."
    assert file.read_text() == "roses are grey\nviolets are green\n"

    assert len(coder.requests) == 5
    read, *edited = results(coder.requests[-1])
    assert "roses are red" in read
    assert len(edited) == 2


def test_a_picture_that_the_model_cannot_see_is_left_out_and_the_rest_goes_on(
    client: ClaudeCode, coder: FakeCoder
) -> None:
    picture = client.project / "dot.png"
    picture.write_bytes(base64.b64decode(DOT))
    coder.decide = in_order(call("Read", file_path=str(picture)), text("I see none."))
    told = client.ask("What is in dot.png?")
    assert (told["is_error"], told["result"]) == (False, "I see none.")
    assert "base64" not in json.dumps(coder.requests[-1])
