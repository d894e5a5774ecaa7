"""`connect`: the settings of a client for a stack. This is the one command that shows the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, output
from zluda_stack.cli.options import dry_run_option, json_option, settings_options
from zluda_stack.errors import PlanRefused, UsageError

if TYPE_CHECKING:
    from zluda_stack.render.clients import Connection, Json

_CLAUDE_SETTINGS = ".claude/settings.local.json"


@click.group()
def connect() -> None:
    """Print or write a client's settings for a stack, with its API key."""


@connect.command()
@settings_options("name")
@json_option
@click.pass_context
def env(ctx: click.Context, flags: dict[str, object], *, as_json: bool) -> None:
    """Print shell exports: eval "$(zluda-stack connect env)"."""
    from zluda_stack.render import clients

    variables = clients.environment(_connection(ctx, flags))
    if as_json:
        output.print_json(variables)
        return
    output.say(clients.shell(variables))


@connect.command()
@settings_options("name")
@click.option("--simple", is_flag=True, help="Three tools and a short prompt, for small contexts.")
@click.option(
    "--write",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    is_flag=False,
    flag_value=_CLAUDE_SETTINGS,
    metavar="[FILE]",
    help=f"Write the env block of FILE (default {_CLAUDE_SETTINGS}) and keep the rest of it.",
)
@dry_run_option
@json_option
@click.pass_context
def claude(
    ctx: click.Context,
    flags: dict[str, object],
    file: Path | None,
    *,
    simple: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Print Claude Code's settings as shell exports, or write them to a settings file.

    Refused when the model's context is smaller than what the client needs.
    """
    from zluda_stack.render import clients

    to = _connection(ctx, flags)
    _require_room(to, simple=simple)
    variables = clients.claude_environment(to)
    if file is not None:
        _write_claude(file, variables, simple=simple, dry_run=dry_run)
    elif as_json:
        output.print_json({"env": variables | clients.claude_mode(simple=simple)})
    else:
        output.say(clients.shell(variables | clients.claude_mode(simple=simple)))


@connect.command()
@settings_options("name")
@json_option
@click.pass_context
def openai(ctx: click.Context, flags: dict[str, object], *, as_json: bool) -> None:
    """Print base URL, key and model for any OpenAI client, and a Python example."""
    from zluda_stack.render import clients

    to = _connection(ctx, flags)
    if as_json:
        output.print_json(clients.openai(to))
        return
    output.table(("setting", "value"), list(clients.openai(to).items()))
    output.say()
    output.say(clients.openai_snippet(to).rstrip())


@connect.command()
@settings_options("name")
@json_option
@click.pass_context
def vscode(ctx: click.Context, flags: dict[str, object], *, as_json: bool) -> None:
    """Print the settings of VS Code's chat and of the extension Continue."""
    from zluda_stack.render import clients

    to = _connection(ctx, flags)
    models, config = clients.vscode_models(to), clients.continue_config(to)
    if as_json:
        output.print_json({"chatLanguageModels.json": models, "continue/config.yaml": config})
        return
    import yaml

    output.heading("chatLanguageModels.json (Chat: Manage Language Models, Custom Endpoint)")
    output.say(json.dumps(models, indent=2))
    output.say()
    output.heading("~/.continue/config.yaml (the extension Continue)")
    output.say(yaml.safe_dump(config, sort_keys=False).rstrip())
    if not to.tools:
        output.note(
            "VS Code offers its agents only models that call tools, which this one is not known "
            "to do; chat works."
        )


def _connection(ctx: click.Context, flags: dict[str, object]) -> Connection:
    """The connection to the stack that the settings name. Raises EngineFailure without one."""
    from zluda_stack import keys
    from zluda_stack.engines import saved_plan
    from zluda_stack.engines.common import never_started
    from zluda_stack.render.clients import connection

    name = context.configured(ctx, flags).settings.name
    plan, key = saved_plan(name), keys.read_key(name)
    if plan is None or key is None:
        raise never_started(name)
    return connection(plan, key)


def _require_room(to: Connection, *, simple: bool) -> None:
    """Case C24: refuse a context that Claude Code's own prompt does not leave room in."""
    from zluda_stack.plan.clients import fits

    client = context.catalog().clients["claude"]
    mode = next(mode for mode in client.modes if mode.name == ("simple" if simple else "default"))
    problem = fits(client, mode, to.context)
    if problem is not None:
        raise PlanRefused(problem.message, problem.hint)


def _write_claude(file: Path, variables: dict[str, str], *, simple: bool, dry_run: bool) -> None:
    from zluda_stack.files import write_atomic
    from zluda_stack.render.clients import merged_claude_settings

    try:
        settings = merged_claude_settings(_read_settings(file), variables)
        content = (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode()
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{file} is not a settings file of Claude Code: {error}",
            "Correct or remove it, or name another file; it was not touched.",
        ) from error
    if dry_run:
        output.say(content.decode().rstrip())
        return
    write_atomic(file, content, mode=0o600)
    output.say(f"Wrote {file}. It holds the API key: keep it out of version control.")
    if simple:
        output.say(
            "The short prompt cannot be set in a file: start it as CLAUDE_CODE_SIMPLE=1 claude"
        )


def _read_settings(file: Path) -> Json:
    """The settings in `file`, none when there is no such file. Raises ValueError."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(error.strerror) from error
    settings = json.loads(text) if text.strip() else {}
    if not isinstance(settings, dict):
        raise ValueError("it holds no JSON object")
    return settings
