"""The settings of the clients of a stack, as text and as plain data.

Everything here is pure. Rendered settings hold the API key: they are for the user's eyes and
files of mode 0600 only.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from msgspec import Struct

from zluda_stack.plan.types import Plan

# The endpoint serves its model under this name whatever the model is.
MODEL = "default"
# What Claude Code asks for when nothing limits it (2.1.332, requests read on 2026-11-30).
_CLAUDE_LONGEST_ANSWER = 32000

Json = dict[str, object]


class Connection(Struct, frozen=True, kw_only=True):
    """What every client needs. `context` is in tokens; `tools` is None when it is not known."""

    stack: str
    title: str
    url: str
    key: str
    context: int
    tools: bool | None

    @property
    def openai_url(self) -> str:
        """The base URL of OpenAI clients, which ends in /v1."""
        return f"{self.url}/v1"

    @property
    def longest_answer(self) -> int:
        """A quarter of the context in tokens: the rest is for the prompt and the history."""
        return self.context // 4


def connection(plan: Plan, key: str) -> Connection:
    """The connection to the stack of `plan`."""
    model = plan.model.catalogued
    return Connection(
        stack=plan.name,
        title=model.title if model else plan.model.name,
        url=plan.endpoint.url,
        key=key,
        context=plan.model.context,
        tools=model.tools if model else None,
    )


def environment(to: Connection) -> dict[str, str]:
    """The variables that the OpenAI and Anthropic packages and most tools read.

    An empty value means that the variable is taken away: a key of the user's for another server
    would be sent to this one as x-api-key (seen with Claude Code 2.1.332).
    """
    return {
        "OPENAI_BASE_URL": to.openai_url,
        "OPENAI_API_KEY": to.key,
        "ANTHROPIC_BASE_URL": to.url,
        "ANTHROPIC_AUTH_TOKEN": to.key,
        "ANTHROPIC_API_KEY": "",
    }


def claude_environment(to: Connection) -> dict[str, str]:
    """The variables of Claude Code, for its settings files and for a shell.

    It assumes a context of a million tokens unless it is told, and sends nothing while less
    than its longest answer (at most 20,000 tokens) and 3,000 more are left of it; so the longest
    answer is told too (measured with 2.1.332 on 2026-11-30). The attribution header changes
    with every request and would spoil the prompt cache.
    """
    return {
        "ANTHROPIC_BASE_URL": to.url,
        "ANTHROPIC_AUTH_TOKEN": to.key,
        "ANTHROPIC_API_KEY": "",
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": MODEL,
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(to.context),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(min(to.longest_answer, _CLAUDE_LONGEST_ANSWER)),
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def claude_mode(*, simple: bool) -> dict[str, str]:
    """The variable that shortens Claude Code's prompt to three tools, or takes that back.

    It counts in the shell only: in a settings file it has no effect (seen with 2.1.332).
    """
    return {"CLAUDE_CODE_SIMPLE": "1" if simple else ""}


def merged_claude_settings(existing: Mapping[str, object], variables: dict[str, str]) -> Json:
    """`existing` settings with `variables` in their `env` block; all else stays as it is.

    Empty values stay in the block: they hide what the shell has. Raises ValueError when
    `existing` has an `env` that is not a block.
    """
    block = existing.get("env", {})
    if not isinstance(block, dict):
        raise ValueError("its `env` is not a block of variables")
    return {**existing, "env": {**block, **variables}}


def shell(variables: dict[str, str]) -> str:
    """Lines for `eval` in a POSIX shell; a variable with an empty value is unset."""
    lines = (
        f"export {name}={shlex.quote(value)}" if value else f"unset {name}"
        for name, value in variables.items()
    )
    return "\n".join(lines)


def openai(to: Connection) -> dict[str, str]:
    """The three values that any OpenAI client asks for."""
    return {"base_url": to.openai_url, "api_key": to.key, "model": MODEL}


def openai_snippet(to: Connection) -> str:
    """A Python program for the openai package that prints one answer."""
    return f"""\
from openai import OpenAI

client = OpenAI(base_url={to.openai_url!r}, api_key={to.key!r})
answer = client.chat.completions.create(
    model={MODEL!r},
    messages=[{{"role": "user", "content": "Say hello."}}],
)
print(answer.choices[0].message.content)
"""


def vscode_models(to: Connection) -> list[Json]:
    """VS Code's own chatLanguageModels.json, with its Custom Endpoint provider.

    Source: docs/agent-customization/language-models.md in microsoft/vscode-docs (approved
    2026-07-29, read 2026-11-30). The two limits together are the context window; a model
    without tool calling is not offered for agents.
    """
    model: Json = {
        "id": MODEL,
        "name": to.title,
        "url": f"{to.openai_url}/chat/completions",
        "toolCalling": bool(to.tools),
        "vision": False,
        "maxInputTokens": to.context - to.longest_answer,
        "maxOutputTokens": to.longest_answer,
    }
    return [
        {
            "name": f"zluda-stack {to.stack}",
            "vendor": "customendpoint",
            "apiKey": to.key,
            "apiType": "chat-completions",
            "models": [model],
        }
    ]


def continue_config(to: Connection) -> Json:
    """The config.yaml of the Continue extension.

    Source: docs/reference.mdx in continuedev/continue (read 2026-11-30).
    """
    model: Json = {
        "name": to.title,
        "provider": "openai",
        "model": MODEL,
        "apiBase": to.openai_url,
        "apiKey": to.key,
        "roles": ["chat", "edit", "apply"],
        "defaultCompletionOptions": {
            "contextLength": to.context,
            "maxTokens": to.longest_answer,
        },
    }
    if to.tools:
        model["capabilities"] = ["tool_use"]
    return {
        "name": f"zluda-stack {to.stack}",
        "version": "0.0.1",
        "schema": "v1",
        "models": [model],
    }
