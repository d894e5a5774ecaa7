"""The settings of Claude Code for a stack: its variables, and its settings file with them.

Everything here is pure. Rendered settings hold the API key: they are for the user's eyes and
files of mode 0600 only.
"""

from __future__ import annotations

from collections.abc import Mapping

from zluda_stack.render.clients import MODEL, Connection, Json

# What Claude Code asks for when nothing limits it (2.1.332, requests read on 2026-11-30).
_LONGEST_ANSWER = 32000
# How long it waits for an answer that is not streamed, an hour in place of its ten minutes: such
# an answer has no sign of life, and a long prompt takes minutes on a small machine.
_TIMEOUT_MS = 60 * 60 * 1000


def environment(to: Connection) -> dict[str, str]:
    """The variables of Claude Code, for its settings files and for a shell.

    It assumes a context of a million tokens unless it is told, and sends nothing while less
    than its longest answer (at most 20,000 tokens) and 3,000 more are left of it; so the longest
    answer is told too. The attribution header changes with every request and would spoil the
    prompt cache. All measured with 2.1.332 on 2026-11-30; an empty value hides what the user
    has for another server.
    """
    models = ("FABLE", "OPUS", "SONNET")
    trusted = {} if to.certificate is None else {"NODE_EXTRA_CA_CERTS": to.certificate}
    return {
        "ANTHROPIC_BASE_URL": to.url,
        "ANTHROPIC_AUTH_TOKEN": to.key,
        "ANTHROPIC_API_KEY": "",
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": to.small,
        **{f"ANTHROPIC_DEFAULT_{model}_MODEL": MODEL for model in models},
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(to.context),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(min(to.longest_answer, _LONGEST_ANSWER)),
        "API_TIMEOUT_MS": str(_TIMEOUT_MS),
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        **trusted,
    }


def mode(*, simple: bool) -> dict[str, str]:
    """The variable that shortens Claude Code's prompt to three tools, or takes that back.

    It counts in the shell only: in a settings file it has no effect (seen with 2.1.332).
    """
    return {"CLAUDE_CODE_SIMPLE": "1" if simple else ""}


def merged(existing: Mapping[str, object], variables: Mapping[str, str]) -> Json:
    """`existing` settings with `variables` in their `env` block; all else stays as it is.

    Empty values stay in the block: they hide what the shell has. Raises ValueError when
    `existing` has an `env` that is not a block.
    """
    return {**existing, "env": {**env_block(existing), **variables}}


def restored(
    settings: Mapping[str, object], written: Mapping[str, str], before: Mapping[str, object]
) -> Json:
    """`settings` without the variables `written`, and with what was in their place `before`.

    A variable that has another value by now is the user's and stays. Raises ValueError when
    `settings` has an `env` that is not a block.
    """
    block = env_block(settings)
    ours = {name for name, value in written.items() if block.get(name) == value}
    left = {name: value for name, value in block.items() if name not in ours}
    left |= {name: value for name, value in before.items() if name in ours}
    others = {name: value for name, value in settings.items() if name != "env"}
    return {**others, "env": left} if left else others


def env_block(settings: Mapping[str, object]) -> dict[str, object]:
    """The variables in `settings`. Raises ValueError when they are no block."""
    block = settings.get("env", {})
    if not isinstance(block, dict):
        raise ValueError("its `env` is not a block of variables")
    return block
