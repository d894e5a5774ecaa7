"""`connect`: the settings of a client for a stack. This is the one command that shows the key."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, live, output
from zluda_stack.cli.connect_claude import claude
from zluda_stack.cli.options import json_option, settings_options
from zluda_stack.errors import UsageError

if TYPE_CHECKING:
    from zluda_stack.render.clients import Connection

    Show = Callable[[Connection, bool], None]


@click.group(invoke_without_command=True)
@click.option(
    "--check", is_flag=True, help="Ask the running stack for what all clients need of it."
)
@settings_options("name")
@json_option
@click.pass_context
def connect(ctx: click.Context, flags: dict[str, object], *, check: bool, as_json: bool) -> None:
    """Print or write a client's settings for a stack, with its API key."""
    if ctx.invoked_subcommand is not None:
        if flags or check or as_json:
            raise UsageError("an option stands before the client", "Put it behind the client.")
        return
    if not check:
        raise click.exceptions.NoArgsIsHelpError(ctx)
    found = context.catalog().clients
    live.check(live.connection(ctx, flags), (found["claude"], found["openai"]), as_json=as_json)


connect.add_command(claude)


def _client(client: str) -> Callable[[Show], click.Command]:
    """Make a command of a function that shows the settings of `client`: (connection, as JSON)."""

    def decorate(show: Show) -> click.Command:
        @functools.wraps(show)
        def command(
            ctx: click.Context, flags: dict[str, object], *, check: bool, as_json: bool
        ) -> None:
            to = live.connection(ctx, flags)
            if check:
                live.check(to, (context.catalog().clients[client],), as_json=as_json)
            else:
                show(to, as_json)

        options = (settings_options("name"), live.check_option, json_option, click.pass_context)
        wrapped: Callable[..., None] = command
        for option in reversed(options):
            wrapped = option(wrapped)
        return connect.command(show.__name__.rstrip("_"))(wrapped)

    return decorate


@_client("openai")
def env(to: Connection, as_json: bool) -> None:  # noqa: FBT001 - see _client
    """Print shell exports: eval "$(zluda-stack connect env)"."""
    from zluda_stack.render import clients

    variables = clients.environment(to)
    if as_json:
        output.print_json(variables)
    else:
        output.say(clients.shell(variables))


@_client("openai")
def openai(to: Connection, as_json: bool) -> None:  # noqa: FBT001 - see _client
    """Print base URL, key and model for any OpenAI client, and a Python example."""
    from zluda_stack.render import clients

    if as_json:
        output.print_json(clients.openai(to))
        return
    output.table(("setting", "value"), list(clients.openai(to).items()))
    output.say()
    output.say(clients.openai_snippet(to).rstrip())


@_client("vscode")
def vscode(to: Connection, as_json: bool) -> None:  # noqa: FBT001 - see _client
    """Print the settings of VS Code's own chat."""
    from zluda_stack.render import editors

    models = editors.vscode_models(to)
    if as_json:
        output.print_json({"chatLanguageModels.json": models})
        return
    output.heading("chatLanguageModels.json (Chat: Manage Language Models, Custom Endpoint)")
    output.say(json.dumps(models, indent=2))
    _notes(to)


@_client("openai")
def continue_(to: Connection, as_json: bool) -> None:  # noqa: FBT001 - see _client
    """Print the settings of Continue, for VS Code, JetBrains and its command line."""
    from zluda_stack.render import editors

    config = editors.continue_config(to)
    if as_json:
        output.print_json({"config.yaml": config})
        return
    import yaml

    output.heading("~/.continue/config.yaml")
    output.say(yaml.safe_dump(config, sort_keys=False).rstrip())
    _notes(to)


@_client("openai")
def cline(to: Connection, as_json: bool) -> None:  # noqa: FBT001 - see _client
    """Print what to fill into Cline's settings."""
    from zluda_stack.render import editors

    form, login = editors.cline(to), editors.cline_command(to)
    if as_json:
        output.print_json({"form": form, "command": login})
        return
    output.table(("setting", "value"), [(name, str(value)) for name, value in form.items()])
    output.say()
    output.heading("# or, for its command line")
    output.say(shlex.join(login))
    _notes(to)


@_client("openai")
def aider(to: Connection, as_json: bool) -> None:  # noqa: FBT001 - see _client
    """Print aider's variables, and the file that tells it the context."""
    from zluda_stack.render import clients, editors

    variables, metadata = editors.aider_environment(to), editors.aider_metadata(to)
    if as_json:
        output.print_json({"env": variables, ".aider.model.metadata.json": metadata})
        return
    output.heading("# in the shell")
    output.say(clients.shell(variables))
    output.say()
    output.heading("# ~/.aider.model.metadata.json")
    output.say(json.dumps(metadata, indent=2))


def _notes(to: Connection) -> None:
    """What the settings of an editor cannot say."""
    if to.certificate is not None:
        output.note(
            f"The endpoint's certificate is {to.certificate}. An editor that does not trust it "
            f"must be started with NODE_EXTRA_CA_CERTS={shlex.quote(to.certificate)}."
        )
    if not to.tools:
        output.note("This model is not known to call tools: chat works, agents may not.")
