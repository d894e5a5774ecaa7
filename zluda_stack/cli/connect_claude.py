"""`connect claude`: Claude Code's settings, printed, written to its files, or taken back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, live, output
from zluda_stack.cli.options import dry_run_option, json_option, settings_options
from zluda_stack.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from zluda_stack.render.clients import Connection

# What stands for the user's own settings file where an option is given without one.
_USERS = "~/.claude/settings.json"


def _file_option(name: str, what: str) -> Callable[..., Callable[..., None]]:
    return click.option(
        name,
        type=click.Path(dir_okay=False, path_type=Path),
        is_flag=False,
        flag_value=_USERS,
        metavar="[FILE]",
        help=what,
    )


@click.command()
@settings_options("name")
@click.option("--simple", is_flag=True, help="Three tools and a short prompt, for small contexts.")
@_file_option("--write", f"Write the env block of FILE ({_USERS}), keep the rest, and check.")
@_file_option("--undo", "Put FILE back as it was before --write; what you changed since stays.")
@live.check_option
@dry_run_option
@json_option
@click.pass_context
def claude(
    ctx: click.Context,
    flags: dict[str, object],
    write: Path | None,
    undo: Path | None,
    *,
    simple: bool,
    check: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Print Claude Code's settings as shell exports, or write them to a settings file.

    Refused when the model's context is smaller than what the client needs. `zluda-stack claude`
    starts the client without any file.
    """
    if sum((write is not None, undo is not None, check)) > 1:
        raise UsageError("--write, --undo and --check exclude each other", "Give one of them.")
    if undo is not None:
        _undo(_settings_file(undo), dry_run=dry_run)
        return
    to = live.connection(ctx, flags)
    if check:
        live.check(to, (context.catalog().clients["claude"],), as_json=as_json, simple=simple)
        return
    live.require_room(to, simple=simple)
    if write is not None:
        _write(to, _settings_file(write), simple=simple, dry_run=dry_run, as_json=as_json)
    else:
        _print(to, simple=simple, as_json=as_json)


def _print(to: Connection, *, simple: bool, as_json: bool) -> None:
    from zluda_stack.render import claude_code, clients

    variables = claude_code.environment(to) | claude_code.mode(simple=simple)
    if as_json:
        output.print_json({"env": variables})
    else:
        output.say(clients.shell(variables))


def _write(to: Connection, file: Path, *, simple: bool, dry_run: bool, as_json: bool) -> None:
    from zluda_stack import claude_settings
    from zluda_stack.render import claude_code

    variables = claude_code.environment(to)
    if dry_run:
        output.say(claude_settings.written(file, variables).rstrip())
        return
    claude_settings.write(file, variables)
    output.note(f"Wrote {file}. It holds the API key: keep it out of version control.")
    output.note(f"`{_undo_command(file)}` puts back what was there.")
    if simple:
        output.note(
            "The short prompt cannot be set in a file: start it as CLAUDE_CODE_SIMPLE=1 claude"
        )
    if live.answering(to):
        live.check(to, (context.catalog().clients["claude"],), as_json=as_json, simple=simple)
    else:
        output.note("The stack is not running, so nothing was checked.")


def _undo(file: Path, *, dry_run: bool) -> None:
    from zluda_stack import claude_settings

    left = claude_settings.undone(file)
    if dry_run:
        output.say(f"{file} would be removed." if left is None else left.rstrip())
        return
    claude_settings.undo(file)
    output.say(f"Removed {file}." if left is None else f"Put {file} back.")


def _settings_file(given: Path) -> Path:
    from zluda_stack import claude_settings

    return claude_settings.user_file(os.environ) if given == Path(_USERS) else given


def _undo_command(file: Path) -> str:
    import shlex

    from zluda_stack.program import program

    own = file == _settings_file(Path(_USERS))
    return f"{program()} connect claude --undo" + ("" if own else f" {shlex.quote(str(file))}")
