"""Whether the chat template of a model has a place for what clients send.

Some templates drop tools or the system message without a word (SmolLM2, Gemma 2: tools; gpt-oss:
system; measured 2026-11-30), and a coding client before such a model only seems to work. It
shows by rendering a request, which llama.cpp's server does without the model.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus

import msgspec
from msgspec import Struct

from zluda_stack.gateway.errors import Fault
from zluda_stack.gateway.pool import Pool
from zluda_stack.gateway.server import Server, State

_TARGET = b"/apply-template"
_SECONDS = 10.0
_LOOK_SECONDS = 1.0
_SYSTEM_MARK = "zluda-stack-system-mark"
_TOOL_MARK = "zluda_stack_tool_mark"

_NO_SYSTEM = "the chat template of this model leaves the system prompt out"
_NO_TOOLS = (
    "the chat template of this model leaves tools out: coding clients, which live by tools, will "
    "not get far with it"
)
_REFUSES = "the chat template of this model refuses a system prompt or tools"

_log = logging.getLogger(__name__)


class _Rendered(Struct):
    prompt: str


class TemplateCheck:
    """What is wrong with the templates: `findings` grow as the models become ready."""

    def __init__(self) -> None:
        self.findings: list[str] = []

    async def run(self, pool: Pool) -> None:
        """Check every model once, as soon as a server of it is ready, and log what is found."""
        await asyncio.gather(*map(self._check, pool.one_of_each_model()))

    async def _check(self, server: Server) -> None:
        while server.state is not State.READY:
            await asyncio.sleep(_LOOK_SECONDS)
        try:
            found = await asyncio.wait_for(findings_of(server), _SECONDS)
        except (Fault, asyncio.TimeoutError) as error:
            _log.warning("the chat template could not be checked: %s", error)
            return
        for finding in found:
            _log.warning("model server %s: %s", server.name, finding)
        self.findings.extend(found)


async def findings_of(server: Server) -> list[str]:
    """What the template of the model at `server` leaves out. Raises Fault."""
    headers = [(b"content-type", b"application/json")]
    async with server.send("POST", _TARGET, headers, _request()) as answer:
        data = await answer.read()
        if answer.status_code in (HTTPStatus.BAD_REQUEST, HTTPStatus.INTERNAL_SERVER_ERROR):
            return [_REFUSES]
        if not answer.is_success:
            raise Fault(502, f"HTTP {answer.status_code}")
    try:
        prompt = msgspec.json.decode(data, type=_Rendered).prompt
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Fault(502, "the answer has another shape") from error
    marks = {_SYSTEM_MARK: _NO_SYSTEM, _TOOL_MARK: _NO_TOOLS}
    return [finding for mark, finding in marks.items() if mark not in prompt]


def _request() -> bytes:
    function = {
        "name": _TOOL_MARK,
        "description": "A tool",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
    }
    messages = [{"role": "system", "content": _SYSTEM_MARK}, {"role": "user", "content": "Hello"}]
    tools = [{"type": "function", "function": function}]
    return msgspec.json.encode({"messages": messages, "tools": tools})
