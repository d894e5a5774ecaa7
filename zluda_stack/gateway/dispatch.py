"""Who answers which path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from zluda_stack.gateway.backend import Backend
from zluda_stack.gateway.exchange import Exchange
from zluda_stack.gateway.forward import forward
from zluda_stack.gateway.messages_answer import answer_messages, count_tokens
from zluda_stack.gateway.models_answer import answer_models
from zluda_stack.gateway.openai_answer import answer_chat, answer_completion, answer_response
from zluda_stack.gateway.props_answer import answer_props
from zluda_stack.gateway.routes import PROPS

Answerer = Callable[[Exchange, bytes, Backend], Awaitable[None]]

_POSTED: dict[str, Answerer] = {
    "/v1/messages": answer_messages,
    "/v1/messages/count_tokens": count_tokens,
    "/v1/chat/completions": answer_chat,
    "/v1/completions": answer_completion,
    "/v1/responses": answer_response,
    # For a client of OpenAI's API whose base URL lacks the /v1.
    "/chat/completions": answer_chat,
    "/responses": answer_response,
}


def answerer(method: str, path: str) -> Answerer:
    """Who answers `path`, which must be known; what needs no change is the model server's."""
    if method == "POST":
        return _POSTED.get(path, forward)
    return answer_props if path == PROPS else answer_models
