"""The settings of editors, and of assistants that speak OpenAI's API, for a stack.

Everything here is pure. Rendered settings hold the API key: they are for the user's eyes and
files of mode 0600 only.
"""

from __future__ import annotations

from zluda_stack.render.clients import MODEL, Connection, Json, trust


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


def cline(to: Connection) -> Json:
    """What Cline asks for with its provider "OpenAI Compatible", by the names of its form.

    Source: docs.cline.bot, provider-config/openai-compatible (read 2026-11-30).
    """
    return {
        "API Provider": "OpenAI Compatible",
        "Base URL": to.openai_url,
        "API Key": to.key,
        "Model ID": MODEL,
        "Context Window Size": to.context,
        "Max Output Tokens": to.longest_answer,
        "Supports Images": False,
    }


def cline_command(to: Connection) -> list[str]:
    """What tells the same to Cline's command line (seen to work with cline 3.0.65)."""
    login = ["cline", "auth", "-p", "openai-compatible", "-b", to.openai_url]
    return [*login, "-m", MODEL, "-k", to.key]


def aider_environment(to: Connection) -> dict[str, str]:
    """The variables of aider; it takes its model as `--model openai/default` or AIDER_MODEL.

    Source: aider.chat/docs, llms/openai-compat and config/options (read 2026-11-30).
    """
    return {
        "OPENAI_API_BASE": to.openai_url,
        "OPENAI_API_KEY": to.key,
        "AIDER_MODEL": f"openai/{MODEL}",
        **trust(to),
    }


def aider_metadata(to: Connection) -> Json:
    """aider's .aider.model.metadata.json: without it no context is known.

    Source: aider.chat/docs, config/adv-model-settings (read 2026-11-30).
    """
    facts = {
        "max_input_tokens": to.context,
        "max_output_tokens": to.longest_answer,
        "input_cost_per_token": 0,
        "output_cost_per_token": 0,
        "litellm_provider": "openai",
        "mode": "chat",
    }
    return {f"openai/{MODEL}": facts}
