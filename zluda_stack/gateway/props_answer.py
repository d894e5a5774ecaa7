"""Answers GET /props: what llama.cpp's own clients ask of a server, without what is the host's."""

from __future__ import annotations

from typing import Any

import msgspec

from zluda_stack.gateway.backend import Backend
from zluda_stack.gateway.errors import Fault
from zluda_stack.gateway.exchange import Exchange
from zluda_stack.gateway.streams import whole_answer

_JSON = [(b"content-type", b"application/json")]
# The rest is the path of the model on the host and how the server was started. Older builds tell
# the state of a slot, with its prompt, among the default settings.
_SHOWN = (
    "bos_token",
    "build_info",
    "chat_template",
    "chat_template_caps",
    "eos_token",
    "media_marker",
    "modalities",
    "model_alias",
    "model_ftype",
    "total_slots",
)
_SHOWN_SETTINGS = ("n_ctx", "params")


async def answer_props(exchange: Exchange, content: bytes, backend: Backend) -> None:
    """Tell what the model server is. Raises Fault."""
    _, _, data = await whole_answer(exchange, backend.send(exchange, content))
    try:
        told = msgspec.json.decode(data, type=dict[str, Any])
        settings = msgspec.convert(told.get("default_generation_settings", {}), dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Fault(502, "the model server's properties have another shape") from error
    shown = {name: told[name] for name in _SHOWN if name in told}
    shown["default_generation_settings"] = {
        name: settings[name] for name in _SHOWN_SETTINGS if name in settings
    }
    await exchange.respond(200, _JSON, msgspec.json.encode(shown))
