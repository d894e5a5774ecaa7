"""Blocks within blocks: deeper than anybody can go, they are the client's mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.in_process import ask
from tests.running_gateway import MESSAGES

WRAPPERS = {
    "tool_result": '{"type":"tool_result","content":[',
    "document": '{"type":"document","source":{"type":"content","content":[',
    "search_result": '{"type":"search_result","content":[',
}


@pytest.mark.parametrize("path", [MESSAGES, f"{MESSAGES}/count_tokens"])
@pytest.mark.parametrize("depth", [250, 400, 900, 100_000])
@pytest.mark.parametrize("kind", WRAPPERS)
def test_blocks_that_are_nested_too_deeply_are_refused(
    tmp_path: Path, kind: str, depth: int, path: str
) -> None:
    begin = WRAPPERS[kind]
    end = "".join({"[": "]", "{": "}"}.get(one, "") for one in reversed(begin))
    blocks = begin * depth + '{"type":"text","text":"hi"}' + end * depth
    body = f'{{"messages":[{{"role":"user","content":[{blocks}]}}]}}'
    answer = ask(tmp_path, path, body.encode())
    assert answer.status in (400, 503)  # 503: no model server is there to ask
    if depth > 400:
        assert answer.status == 400
        assert answer.json()["type"] == "error"
