"""`claude`: Claude Code against a running stack, with settings for this one run."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from typing import TYPE_CHECKING

import click

from zluda_stack.cli import context, live, output
from zluda_stack.cli.options import dry_run_option, settings_options
from zluda_stack.errors import HostProblem

if TYPE_CHECKING:
    from pathlib import Path

    from zluda_stack.catalog.schema import Client
    from zluda_stack.render.clients import Connection


class PassingOn(click.Command):
    """A command whose own options come first; from the first other word on, all is passed on."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `--` before the first word that is no option of this command."""
        takes_value = {
            name: isinstance(option, click.Option) and not option.is_flag
            for option in self.get_params(ctx)
            for name in (*option.opts, *option.secondary_opts)
        }
        at = 0
        while at < len(args) and args[at].partition("=")[0] in takes_value:
            at += 2 if takes_value.get(args[at]) else 1
        others = args[at + 1 :] if args[at : at + 1] == ["--"] else args[at:]
        return super().parse_args(ctx, [*args[:at], "--", *others])


@click.command(cls=PassingOn)
@settings_options("name")
@click.option("--simple", is_flag=True, help="Three tools and a short prompt, for small contexts.")
@dry_run_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[--] [ARGS]...")
@click.pass_context
def claude(
    ctx: click.Context,
    flags: dict[str, object],
    arguments: tuple[str, ...],
    *,
    simple: bool,
    dry_run: bool,
) -> None:
    """Start Claude Code against the running stack; ARGS are its own.

    Its settings count for this run only: no file of yours is changed, and what yours say of
    another server does not count.
    """
    context.refuse_replay(ctx, "claude")
    to = live.connection(ctx, flags)
    live.require_room(to, simple=simple)
    client = context.catalog().clients["claude"]
    file = _settings_file(to.stack)
    options = ["--settings", str(file), *arguments]
    if dry_run:
        command = [shutil.which(client.name) or client.name, *options]
        output.say(_in_front(simple=simple) + shlex.join(command))
        return
    program = _program(client)
    live.require_answer(to)
    _write_settings(file, to)
    sys.stdout.flush()
    os.execve(program, [program, *options], _environment(to, simple=simple))  # noqa: S606 - no shell is meant


def _in_front(*, simple: bool) -> str:
    """What a shell must have in front of the command: what no settings file can say."""
    from zluda_stack.render import claude_code

    variables = claude_code.mode(simple=simple).items()
    return "".join(f"{name}={value} " for name, value in variables if value)


def _program(client: Client) -> str:
    """The path of `client`. Raises HostProblem where it is not installed."""
    found = shutil.which(client.name)
    if found is None:
        raise HostProblem(
            f"{client.title} is not installed: there is no program {client.name} in the PATH",
            f"{client.install} tells how to install it.",
        )
    return found


def _settings_file(stack: str) -> Path:
    from zluda_stack import paths

    return paths.stack(stack) / "claude-settings.json"


def _write_settings(file: Path, to: Connection) -> None:
    """The settings that the client is told by `--settings`, which win over all other files.

    Its own files win over the environment (seen with 2.1.332), so that alone would not do; and
    on the command line everybody could read the key.
    """
    from zluda_stack.files import write_atomic
    from zluda_stack.render import claude_code

    settings = claude_code.merged({}, claude_code.environment(to))
    write_atomic(file, json.dumps(settings, indent=2) + "\n", mode=0o600)


def _environment(to: Connection, *, simple: bool) -> dict[str, str]:
    from zluda_stack.render import claude_code

    variables = claude_code.environment(to) | claude_code.mode(simple=simple)
    kept = {name: value for name, value in os.environ.items() if name not in variables}
    return kept | {name: value for name, value in variables.items() if value}
